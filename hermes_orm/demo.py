"""What a store does, told to a person: a conversation is recorded, resumed and searched."""

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console, Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from hermes_orm.rows import ConversationMessage, SearchHit, SessionRow
from hermes_orm.session_db import SessionDB

SYSTEM_PROMPT: Final = "You look after the computers of a workshop. Answer in the user's language."

FIRST_PART: Final[Sequence[dict[str, Any]]] = (
    {"role": "user", "content": "The nightly backup failed again. Can you find out why?"},
    {
        "role": "assistant",
        "content": "Let me look at the backup disk first.",
        "reasoning": "Most failed backups are full disks: check free space, then read the logs.",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "terminal", "arguments": '{"command": "df -h /backup"}'},
            }
        ],
        "finish_reason": "tool_calls",
    },
    {
        "role": "tool",
        "tool_name": "terminal",
        "tool_call_id": "call_1",
        "content": "Filesystem  Size  Used  Avail  Use%\n/dev/sdb1   100G   97G     3G   97%",
    },
    {
        "role": "assistant",
        "content": "The backup disk is full: 3 GB are left, and a snapshot needs 12 GB."
        " Deleting last winter's snapshots frees 40 GB.",
        "finish_reason": "stop",
    },
    {"role": "user", "content": "请用中文总结一下。"},
    {
        "role": "assistant",
        "content": "备份磁盘快满了：只剩 3 GB，而一次快照需要 12 GB。"
        "删除去年冬天的快照可以腾出 40 GB。",
        "finish_reason": "stop",
    },
)
SECOND_PART: Final[Sequence[dict[str, Any]]] = (
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "I deleted them. Is tonight's report fine?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        ],
    },
    {
        "role": "assistant",
        "content": "Yes, the report shows a complete backup; 31 GB are free now.",
        "finish_reason": "stop",
    },
)
SEARCHES: Final = {"a word": "snapshots", "a phrase": '"backup disk"', "Chinese": "备份磁盘"}

GONE: Final = """\
The file was temporary and is deleted now. --keep keeps it; --url takes a file or
a PostgreSQL URL, and the session stays there."""
STYLES: Final = {"user": "cyan", "assistant": "green", "tool": "magenta"}


@dataclass(frozen=True)
class Played:
    """What happened: the session, its messages before and after the restart, hits, durations."""

    store: str
    session: SessionRow
    resumed: list[ConversationMessage]
    continued: list[ConversationMessage]
    hits: dict[str, list[SearchHit]]
    milliseconds: dict[str, float]


@dataclass
class Stopwatch:
    """Milliseconds of each step, measured from the end of the one before."""

    laps: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, step: str) -> None:
        """End a step."""
        now = time.perf_counter()
        self.laps[step], self.last = (now - self.last) * 1000, now


async def play(location: str) -> Played:
    """Record a conversation, close the store, open it again, go on, and search.

    The session gets an id of its own and stays in the store. A message that comes back changed is a
    RuntimeError.
    """
    session_id = f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    watch = Stopwatch()
    async with SessionDB(location) as db:
        await db.create_session(session_id, "demo", system_prompt=SYSTEM_PROMPT)
        watch.lap("open")
        await record(db, session_id, FIRST_PART)
        watch.lap("record")

    async with SessionDB(location) as db:
        resumed = await db.get_messages_as_conversation(session_id)
        watch.lap("resume")
        check_unchanged(resumed)
        await record(db, session_id, SECOND_PART)
        conversation = await db.get_messages_as_conversation(session_id)
        session = await db.get_session(session_id)
        assert session is not None
        watch.lap("continue")
        hits = {query: await find(db, session_id, query) for query in SEARCHES.values()}
        watch.lap("search")
    continued = conversation[len(resumed) :]
    return Played(str(db.db_path), session, resumed, continued, hits, watch.laps)


async def record(db: SessionDB, session_id: str, messages: Sequence[dict[str, Any]]) -> None:
    """Append messages one at a time, as an agent does."""
    for message in messages:
        await db.append_message(session_id, **message)


def check_unchanged(resumed: list[ConversationMessage]) -> None:
    """Raise RuntimeError unless the conversation is the one that was recorded."""
    same = [wanted.items() <= got.items() for wanted, got in zip(FIRST_PART, resumed, strict=False)]
    if len(resumed) != len(FIRST_PART) or not all(same):
        raise RuntimeError("the resumed conversation differs from the recorded one")


async def find(db: SessionDB, session_id: str, query: str) -> list[SearchHit]:
    """Return the demo's own hits; a store in use may hold others."""
    newest = await db.search_messages(query, source_filter=["demo"], sort="newest")
    return [hit for hit in newest if hit["session_id"] == session_id]


def show(played: Played, console: Console, *, is_kept: bool) -> None:
    """Tell a person what happened; `is_kept` is False when the store is about to be deleted."""
    session, took = played.session, played.milliseconds
    console.print(Text.assemble("Store:   ", (played.store, "bold")), soft_wrap=True)
    console.print(Text.assemble("Session: ", (session["id"], "bold")))

    console.print(heading("1. Recorded"))
    console.print(
        f"{len(played.resumed)} messages and their system prompt: {took['record']:.1f} ms,"
        f" after {took['open']:.0f} ms to open the store.\n"
        "Then the store was closed."
    )
    console.print(heading("2. Resumed"))
    console.print(f"Opened again; every message came back unchanged, in {took['resume']:.1f} ms:\n")
    console.print(conversation(played.resumed))
    console.print("\nThe conversation went on, with a message of several parts:\n")
    console.print(conversation(played.continued))
    console.print(
        f"\nThe session counts {session['message_count']} messages"
        f" and {session['tool_call_count']} tool call."
    )
    console.print(heading("3. Searched"))
    console.print(found(played.hits))
    console.print(f"\n{len(played.hits)} searches took {took['search']:.1f} ms.")

    console.print(heading("Afterwards"))
    console.print(kept(played) if is_kept else GONE, soft_wrap=True)


def heading(text: str) -> Group:
    """Return a title line with space above it."""
    return Group("", Rule(Text(text, "bold"), align="left"))


def conversation(messages: list[ConversationMessage]) -> Table:
    """Return messages as lines, each with its speaker in front."""
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=len("assistant"))
    table.add_column(overflow="fold")
    for message in messages:
        speaker, style = message["role"], STYLES.get(message["role"], "")
        for line in lines(message):
            table.add_row(Text(speaker, style), line)
            speaker = ""
    return table


def lines(message: ConversationMessage) -> Iterator[Text]:
    """Yield what a message says: reasoning, text or parts, tool calls."""
    if "reasoning" in message:
        yield Text(f"(thinks) {message['reasoning']}", "dim italic")
    content = message["content"]
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        yield (
            Text(str(part["text"])) if part["type"] == "text" else Text(f"({part['type']})", "dim")
        )
    for call in message.get("tool_calls", ()):
        arguments = json.loads(call["function"]["arguments"])
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        yield Text(f"-> {call['function']['name']}({given})", "yellow")


def found(hits: dict[str, list[SearchHit]]) -> Table:
    """Return searches and their hits as a table, what matched set off."""
    table = Table(box=None, pad_edge=False, header_style="underline")
    for title in ("looked for", "", "found in", "text"):
        table.add_column(title, overflow="fold")
    for kind, query in SEARCHES.items():
        for number, hit in enumerate(hits[query]):
            left = ("", "") if number else (query, kind)
            table.add_row(Text(left[0], "bold"), left[1], hit["role"], marked(hit["snippet"]))
        if not hits[query]:
            table.add_row(Text(query, "bold"), kind, "nothing", "")
    return table


def marked(snippet: str) -> Text:
    """Return a snippet with its matches in bold instead of between >>> and <<<."""
    text = Text()
    for number, piece in enumerate(snippet.replace("<<<", ">>>").split(">>>")):
        text.append(piece, "bold yellow" if number % 2 else "")
    return text


def kept(played: Played) -> Text:
    """Return how to look at the session in the store."""
    return Text(
        "The session is still there. To look at it, start: python -m asyncio\n"
        "  >>> from hermes_orm import SessionDB\n"
        f"  >>> db = SessionDB({played.store!r})\n"
        f"  >>> await db.get_messages({played.session['id']!r})"
    )
