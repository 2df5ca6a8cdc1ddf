"""Stored text <-> Python values: message content, JSON columns, plain text and times.

Nothing here knows a database. The one difference between them, whether text can hold U+0000,
arrives as the *marker* that introduces structured content; decoders accept both markers.
"""

import json
import logging
import re
from collections.abc import Callable
from typing import Any, Final

from hermes_orm.rows import Content, JsonObject

SQLITE_MARKER: Final = "\x00json:"
POSTGRESQL_MARKER: Final = "\x01json:"

_MARKERS: Final = (SQLITE_MARKER, POSTGRESQL_MARKER)
MARKER_LENGTH: Final = 6
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"

_UNREADABLE: Final = (ValueError, RecursionError)
_UNSERIALISABLE: Final = (TypeError, ValueError, RecursionError)
_loads: Final = json.JSONDecoder().decode
_dumps: Final = json.JSONEncoder(default=str).encode
_dumps_unescaped: Final = json.JSONEncoder(default=str, ensure_ascii=False).encode

EARLIEST_TIME: Final = -62135596800.0  # year 1
LATEST_TIME: Final = 1e11  # anything above is a time in milliseconds
_INT64: Final = range(-(2**63), 2**63)

logger = logging.getLogger(__name__)


# Plain text


def is_encodable(text: str) -> bool:
    """Return whether `text` is free of lone surrogates, which no database text can hold."""
    if text.isascii():
        return True
    try:
        text.encode()  # several times faster than a regular expression on long text
    except UnicodeEncodeError:
        return False
    return True


def without_surrogates(text: str) -> str:
    """Return `text` with every lone surrogate replaced by U+FFFD, one for one."""
    return text if is_encodable(text) else _SURROGATE.sub(_REPLACEMENT, text)


def plain_text(value: object) -> str:
    """Return a scalar as text: numbers in decimal, True as "1", bytes decoded as UTF-8."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, int):
        return str(int(value))
    return _shown(value)


def _shown(value: object) -> str:
    try:
        return str(value)
    except RecursionError:
        raise ValueError("a value is nested too deep to be stored as text: flatten it") from None


def encode_text(value: object) -> str | None:
    """Return the text of an ordinary column: lone surrogates and U+0000 become U+FFFD."""
    if value is None:
        return None
    return without_surrogates(plain_text(value)).replace("\0", _REPLACEMENT)


# Message content


def encode_content(marker: str, value: object) -> str | None:
    """Return the stored form of message content.

    Lists, tuples and dicts become `marker` and JSON; so do strings that begin with a marker, and
    strings with U+0000 where the database cannot hold it. Values that JSON cannot hold are
    stored as their `str()`.
    """
    if value is None:
        return None
    if isinstance(value, (list, tuple, dict)):
        try:
            return marker + _dumps(value)
        except _UNSERIALISABLE:  # circular, or keys that are no text
            value = _shown(value)
    text = without_surrogates(plain_text(value))
    if text.startswith(_MARKERS) or ("\0" in text and marker != SQLITE_MARKER):
        return marker + _dumps(text)
    return text


def decode_content(stored: str | bytes | None) -> Content:
    """Return the value of stored content; text that is not readable JSON stays text."""
    if isinstance(stored, bytes):  # written as a BLOB by another program
        stored = stored.decode("utf-8", "replace")
    if not isinstance(stored, str) or not stored.startswith(_MARKERS):
        return stored
    try:
        return _loads(stored[MARKER_LENGTH:])  # type: ignore[no-any-return]
    except _UNREADABLE:
        return stored


def encode_api_content(marker: str, value: object) -> str | None:
    """Return the stored form of `api_content`, lossless for U+0000; only a str is stored."""
    return encode_content(marker, value) if isinstance(value, str) else None


def decode_api_content(stored: str | None) -> str | None:
    """Return the text of a stored `api_content`."""
    value = decode_content(stored)
    return value if isinstance(value, str) else stored


# JSON columns


def encode_tool_calls(value: object) -> tuple[str | None, int]:
    """Return the stored JSON of `tool_calls` and the number of calls in it.

    Non-ASCII text is kept readable, so that word search finds it. Falsy values and text that is
    not JSON are stored as NULL.
    """
    if isinstance(value, str) and value:
        try:
            value = _loads(value)
        except _UNREADABLE:
            logger.warning("tool_calls is not JSON and is stored as NULL; pass a list or JSON text")
            return None, 0
    if not value:
        return None, 0
    return _escape_surrogates(_json_text(_dumps_unescaped, value)), count_tool_calls(value)


def decode_tool_calls(stored: str | None) -> Any:
    """Return the value of a stored `tool_calls`; NULL is None, text that is not JSON is `[]`."""
    if not stored:
        return None
    try:
        return _loads(stored)
    except _UNREADABLE:
        return []


def count_tool_calls(value: object) -> int:
    """Return how many tool calls a decoded `tool_calls` value stands for."""
    return len(value) if isinstance(value, (list, tuple)) else int(bool(value))


def encode_json(value: object) -> str | None:
    """Return the stored text of a reasoning column: text as it is, other values as JSON."""
    if not value:
        return None
    if not isinstance(value, str):
        return _json_text(_dumps, value)
    if not is_encodable(value) and decode_json(value) is not None:
        value = _escape_surrogates(value)
    return encode_text(value)


def decode_json(stored: str | None) -> Any:
    """Return the value of stored JSON; None for NULL and for text that is not JSON."""
    if not stored:
        return None
    try:
        return _loads(stored)
    except _UNREADABLE:
        return None


def encode_display_metadata(value: object) -> str | None:
    """Return the stored JSON object of `display_metadata`; anything but an object is NULL."""
    if not value:
        return None
    parsed = decode_json(value) if isinstance(value, str) else value
    if isinstance(parsed, dict):
        try:
            return _dumps(parsed) if parsed else None
        except _UNSERIALISABLE:  # circular, or keys that are no text
            pass
    logger.warning("display_metadata is no JSON object and is stored as NULL; pass a dict")
    return None


def decode_display_metadata(stored: str | None) -> JsonObject | None:
    """Return the object of a stored `display_metadata`, also when it was encoded twice."""
    value = decode_json(stored)
    if isinstance(value, str):
        value = decode_json(value)
    return value if isinstance(value, dict) else None


def _json_text(encode: Callable[[object], str], value: object) -> str:
    """JSON of `value`; of its `str()` when it is circular or has keys that are no text."""
    try:
        return encode(value)
    except _UNSERIALISABLE:
        return encode(_shown(value))


def _escape_surrogates(json_text: str) -> str:
    """JSON text with each lone surrogate as its escape, which reads back as the same value."""
    if is_encodable(json_text):
        return json_text
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


# Numbers and times


def encode_timestamp(value: object, now: float) -> float:
    """Return Unix seconds from a datetime, a number or a numeric string.

    `now` stands in for None, for anything unreadable, for times outside the years 1 to 5138 and
    thereby for times in milliseconds.
    """
    if value is None:
        return now
    try:
        moment = getattr(value, "timestamp", None)
        seconds = float(moment() if callable(moment) else value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ArithmeticError, OSError):
        return now
    return seconds if EARLIEST_TIME <= seconds <= LATEST_TIME else now


def encode_integer(value: object) -> int | None:
    """Return `int(value)`; None for anything that is no 64-bit integer."""
    if value is None:
        return None
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number in _INT64 else None
