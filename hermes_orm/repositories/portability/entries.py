"""Entries of an import: what is accepted of them, and why others are rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_orm.codec import is_encodable
from hermes_orm.repositories.portability.rows import RejectedSession
from hermes_orm.repositories.sessions.prompts import prompt_hash
from hermes_orm.session_text import MAX_KEY_BYTES, decode_config, encode_config, session_text

MOST_SESSIONS: Final = 500
MOST_MESSAGES: Final = 10_000
"""Of one session."""
MOST_MESSAGES_IN_ALL: Final = 50_000
SESSION_BYTES: Final = 5 * 2**20
"""Of a session as compact JSON in UTF-8."""
IMPORT_BYTES: Final = 25 * 2**20

_NO_JSON: Final = "session must be JSON serializable"


class Rejected(Exception):
    """An entry cannot be imported; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An accepted session: its row, which lacks the counters, and its messages as given."""

    index: int
    row: dict[str, Any]
    prompt: str | None
    messages: list[dict[str, Any]]

    @property
    def id(self) -> str:
        """The id of the session."""
        key: str = self.row["id"]
        return key

    @property
    def parent(self) -> str | None:
        """The id that is given as its parent's."""
        parent: str | None = self.row["parent_session_id"]
        return parent

    @classmethod
    def of(
        cls, index: int, key: str, config: str | None, fields: dict[str, Any], messages: Any
    ) -> Entry:
        """Return the entry with the values that are stored."""
        prompt = fields.pop("system_prompt")
        source = fields["source"] or "import"
        row = fields | {
            "id": key,
            "source": source,
            "created_source": source,
            "model_config": config,
            "system_prompt_hash": None if prompt is None else prompt_hash(prompt),
            "parent_session_id": (fields["parent_session_id"] or "").strip() or None,
        }
        return cls(index, row, prompt, messages)


@dataclass
class Inspection:
    """Checks the entries of one import, and keeps count of what they bring."""

    accepted: dict[str, Entry] = field(default_factory=dict)
    rejected: list[RejectedSession] = field(default_factory=list)
    _bytes: int = 0
    _messages: int = 0

    def steps(self, entries: list[Any]) -> Iterator[None]:
        """Check all entries; a step is as much as one message."""
        for index, entry in enumerate(entries):
            try:
                yield from self._check(index, entry)
            except Rejected as rejection:
                item: RejectedSession = {"index": index, "error": str(rejection)}
                if isinstance(entry, dict) and (key := _id_of(entry)):
                    item["session_id"] = key
                self.rejected.append(item)

    def _check(self, index: int, entry: Any) -> Iterator[None]:
        """Accept an entry, or raise with the first of its faults."""
        from hermes_orm.repositories.portability import fields  # imports pydantic

        _require(isinstance(entry, dict), "session must be an object")
        key = _id_of(entry)
        _require(bool(key), "session id is required")
        _require(key not in self.accepted, "duplicate session id")
        messages = entry.get("messages") or []
        _require(isinstance(messages, list), "messages must be a list")
        _require(len(messages) <= MOST_MESSAGES, "messages exceeds the per-session import limit")
        are_objects = all(isinstance(message, dict) for message in messages)
        _require(are_objects, "messages must contain only objects")
        yield from self._weigh(entry, messages)
        _require(len(key.encode(errors="replace")) <= MAX_KEY_BYTES, "session id is too long")
        _require("\0" not in key, "session id must not contain U+0000")
        config = _config_text(entry.get("model_config"))
        values = fields.of_session(entry)
        for position, message in enumerate(messages):
            fields.check_message(position, message)
            yield
        in_all = self._messages + len(messages)
        _require(in_all <= MOST_MESSAGES_IN_ALL, "messages exceeds the total import limit")
        self._messages = in_all
        self.accepted[key] = Entry.of(index, key, config, values, messages)

    def _weigh(self, entry: dict[Any, Any], messages: list[Any]) -> Iterator[None]:
        """Add the size of an entry's JSON, message by message."""
        size = _size({**entry, "messages": []} if messages else entry) + max(0, len(messages) - 1)
        for message in messages:
            size += _size(message)
            yield
        _require(size <= SESSION_BYTES, "session exceeds the import size limit")
        self._bytes += size
        _require(self._bytes <= IMPORT_BYTES, "import exceeds the total size limit")


def _require(is_met: bool, reason: str) -> None:
    if not is_met:
        raise Rejected(reason)


def _id_of(entry: dict[Any, Any]) -> str:
    return str(entry.get("id") or "").strip()


def _size(record: dict[Any, Any]) -> int:
    """Return the bytes of a session or message as JSON; raise Rejected for what would be lost.

    Structured values are stored as JSON, in which lone surrogates stay; no text column keeps one.
    """
    texts = (value for value in record.values() if isinstance(value, str))
    try:
        _require(all(map(is_encodable, texts)), _NO_JSON)
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        return len(text.encode(errors="surrogatepass"))
    except (TypeError, ValueError, RecursionError):
        raise Rejected(_NO_JSON) from None


def _config_text(given: object) -> str | None:
    """Return `model_config` as it is stored: text stays as it is."""
    if given is None:
        return None
    config = given
    if isinstance(given, str):
        try:
            config = json.loads(given)
        except (ValueError, RecursionError):
            raise Rejected("model_config must be valid JSON") from None
    if not isinstance(config, dict):
        raise Rejected("model_config must be a JSON object")
    if isinstance(given, str) and decode_config(given) is not None:
        return session_text(given)
    try:
        return encode_config(config)
    except TypeError:
        raise Rejected("model_config must be JSON serializable") from None
