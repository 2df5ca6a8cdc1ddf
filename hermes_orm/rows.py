"""Shapes of the dicts that operations return.

The keys are part of the public contract; the tables have more columns.
"""

from typing import Any, NotRequired, TypeAlias, TypedDict

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object."""

Content: TypeAlias = str | list[Any] | JsonObject | None
"""Message content: text, or structured parts."""


class CompactSessionRow(TypedDict):
    """A row of `sessions` without its prompt."""

    id: str
    source: str
    user_id: str | None
    session_key: str | None
    chat_id: str | None
    chat_type: str | None
    thread_id: str | None
    display_name: str | None
    origin_json: str | None
    expiry_finalized: int
    model: str | None
    model_config: str | None
    parent_session_id: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    message_count: int
    tool_call_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cwd: str | None
    git_repo_root: str | None
    git_branch: str | None
    billing_provider: str | None
    billing_base_url: str | None
    billing_mode: str | None
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    cost_status: str | None
    cost_source: str | None
    pricing_version: str | None
    title: str | None
    title_source: str | None
    last_activity_at: float | None
    last_activity_description: str | None
    last_activity_provenance: str | None
    api_call_count: int
    handoff_state: str | None
    handoff_platform: str | None
    handoff_error: str | None
    compression_failure_cooldown_until: float | None
    compression_failure_error: str | None
    compression_fallback_streak: int
    compression_ineffective_count: int
    profile_name: str | None
    rewind_count: int
    archived: int
    pinned: int
    hidden: int
    last_read_at: float | None


class SessionRow(CompactSessionRow):
    """A row of `sessions` with the text of its system prompt: 55 keys."""

    system_prompt: str | None
    system_prompt_hash: str | None


class RichSessionRow(CompactSessionRow):
    """A listed session. Compact rows lack the prompt; projected rows name their lineage root."""

    system_prompt: NotRequired[str | None]
    system_prompt_hash: NotRequired[str | None]
    last_active: float
    preview: str
    unread: bool
    _lineage_root_id: NotRequired[str]


class ActiveSessionRow(SessionRow):
    """A row of `sessions` with the time of its last sign of life."""

    last_active: float


class ScaffoldedSession(TypedDict):
    """A titled session that begins with a skill; `content` is its first user message as stored."""

    id: str
    title: str
    content: str


class SessionActivity(TypedDict):
    """The last sign of life of a session, each value under the names that callers know it by."""

    last_activity_at: float | None
    last_activity_ts: float | None
    last_activity_description: str
    last_activity_desc: str
    description: str
    last_activity_provenance: str
    provenance: str
    seconds_since_activity: float | None


class PruneCandidate(TypedDict):
    """An ended session that pruning would delete, the time of its latest message or its start."""

    id: str
    source: str
    title: str | None
    model: str | None
    started_at: float | None
    last_active: float | None
    ended_at: float | None
    message_count: int
    archived: int


class AutoPruneResult(TypedDict):
    """What automatic pruning did; `error` when something failed."""

    skipped: bool
    pruned: int
    vacuumed: bool
    error: NotRequired[str]


class AutoArchiveResult(TypedDict):
    """What automatic archiving did; `error` when something failed."""

    skipped: bool
    archived: int
    error: NotRequired[str]


class WorkspaceRow(TypedDict):
    """A working directory of sessions; the time is the last end, or start of an open one."""

    cwd: str
    sessions: int
    last_active: float


class MessageRow(TypedDict):
    """A row of `messages`: 23 keys. The reasoning and codex columns are the stored JSON text."""

    id: int
    session_id: str
    role: str
    content: Content
    tool_call_id: str | None
    tool_calls: Any
    tool_name: str | None
    effect_disposition: str | None
    timestamp: float
    token_count: int | None
    finish_reason: str | None
    reasoning: str | None
    reasoning_content: str | None
    reasoning_details: str | None
    codex_reasoning_items: str | None
    codex_message_items: str | None
    platform_message_id: str | None
    observed: int
    active: int
    compacted: int
    api_content: str | None
    display_kind: str | None
    display_metadata: JsonObject | None


class MessageState(TypedDict):
    """Where a message is and whether it is live (`active` 1) or archived (`compacted` 1)."""

    session_id: str
    active: int
    compacted: int


class MessageWindow(TypedDict):
    """Messages around an anchor; the counts are the messages read on each side of it."""

    window: list[MessageRow]
    messages_before: int
    messages_after: int


class AnchoredView(MessageWindow):
    """A window, with the first and the last messages of the session outside of it."""

    bookend_start: list[MessageRow]
    bookend_end: list[MessageRow]


class RecentUserMessage(TypedDict):
    """One line of a list of user messages."""

    id: int
    timestamp: float
    preview: str


class RewindResult(TypedDict):
    """What a rewind has undone. Of `target_message` only `content` is decoded."""

    rewound_count: int
    target_message: MessageRow
    new_head_id: int | None


class ConversationMessage(TypedDict):
    """A message as a model sees it; a key without a value is absent."""

    role: str
    content: Content
    _row_id: NotRequired[int]
    api_content: NotRequired[str]
    display_kind: NotRequired[str]
    display_metadata: NotRequired[JsonObject]
    timestamp: NotRequired[float]
    tool_call_id: NotRequired[str]
    tool_name: NotRequired[str]
    effect_disposition: NotRequired[str]
    tool_calls: NotRequired[Any]
    message_id: NotRequired[str]
    observed: NotRequired[bool]
    finish_reason: NotRequired[str]
    reasoning: NotRequired[str]
    reasoning_content: NotRequired[str]
    reasoning_details: NotRequired[Any]
    codex_reasoning_items: NotRequired[Any]
    codex_message_items: NotRequired[Any]


class CompressionCooldown(TypedDict):
    """Until when a session is not to be compressed again."""

    cooldown_until: float
    remaining_seconds: float
    error: str | None


class CooldownRow(TypedDict):
    """What is stored of a session's compression cooldown."""

    session_exists: bool
    cooldown_until: float | None
    error: str | None


class ContextEntry(TypedDict):
    """A neighbour of a search hit."""

    role: str
    content: str


class SearchHit(TypedDict):
    """A message found by a search."""

    id: int
    session_id: str
    role: str
    snippet: str
    timestamp: float
    tool_name: str | None
    source: str
    model: str | None
    session_started: float
    context: list[ContextEntry]


class RebuildStatus(TypedDict):
    """How far the rebuild of an index is, in row ids."""

    pending: bool
    total: int
    indexed: int
    percent: int


class StorageProgress(TypedDict):
    """Where `optimize_fts_storage` is: in phase `backfill`, `teardown`, `vacuum` or `done`."""

    phase: str
    percent: int
    indexed: int
    total: int


class StorageResult(TypedDict):
    """What came of `optimize_fts_storage`; `reason` when it is not `ok`."""

    ok: bool
    reason: NotRequired[str]
    vacuumed: NotRequired[bool | None]


class UsageStatistics(TypedDict):
    """Usage of a group of sessions; `cost_usd` is the actual cost where known, or the estimate."""

    key: str
    sessions: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    api_call_count: int
    estimated_cost_usd: float
    actual_cost_usd: float
    cost_usd: float


class ModelRoute(TypedDict):
    """A model, over which route it was billed, and how often it was called."""

    model: str
    billing_provider: str
    billing_base_url: str
    billing_mode: str
    api_call_count: int
