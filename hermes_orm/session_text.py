"""Text of session rows: stored arguments, ids and keys, titles, `model_config`."""

import json
import string
from collections.abc import Mapping
from typing import Any, Final

from hermes_orm.codec import encode_text, is_encodable, plain_text, without_surrogates
from hermes_orm.rows import JsonObject

_COMPACT: Final = (",", ":")

MAX_KEY_BYTES: Final = 1024
"""Length of ids, keys and sources, on both databases: indexes of PostgreSQL hold no more."""
MAX_ENTRY_BYTES: Final = 2600
"""Length of the texts that one index holds together, on both databases."""

session_text: Final = encode_text
"""Return an argument as stored text: lone surrogates and U+0000 become U+FFFD, None stays."""


def lookup_key(value: object) -> str | None:
    """Return the text to look an id, key or title up with; None when it can match nothing."""
    if value is None:
        return None
    text = plain_text(value)
    return text if "\0" not in text and is_encodable(text) else None


def stored_key(value: object, name: str = "session id") -> str:
    """Return an id or key that is to be stored, never altered.

    Raises ValueError when it holds U+0000 or a lone surrogate, or is longer than an index holds;
    `name` says what it is.
    """
    key = lookup_key(value)
    if key is None:
        raise ValueError(
            f"a {name} cannot be None or hold U+0000 or a lone surrogate; remove them first"
        )
    return _fitting(key, name)


def indexed_text(value: object, name: str) -> str | None:
    """Return an argument as `session_text` does; ValueError when no index can hold it."""
    text = encode_text(value)
    return None if text is None else _fitting(text, name)


def _fitting(text: str, name: str) -> str:
    if len(text) > MAX_KEY_BYTES // 4 and (size := len(text.encode())) > MAX_KEY_BYTES:
        raise ValueError(
            f"a {name} has at most {MAX_KEY_BYTES} bytes as UTF-8, and this one has {size}: "
            "shorten it, or give a hash of it"
        )
    return text


def check_entry(texts: Mapping[str, Any]) -> None:
    """Raise ValueError when the texts of an index entry, by name, are too long together."""
    given = [text for text in texts.values() if text is not None]
    if sum(map(len, given)) <= MAX_ENTRY_BYTES // 4:
        return
    if (size := sum(len(text.encode()) for text in given)) > MAX_ENTRY_BYTES:
        raise ValueError(
            f"{', '.join(texts)} have at most {MAX_ENTRY_BYTES} bytes together as UTF-8, and these "
            f"have {size}: shorten them"
        )


_LOWER: Final = {ord(capital): capital.lower() for capital in string.ascii_uppercase}
_LIKE_ESCAPES: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\%_"})


def fold_ascii(text: str) -> str:
    """Return `text` with A to Z lowered, as the databases' lower() does it; other letters stay."""
    return text.translate(_LOWER)


def escape_like(text: str) -> str:
    """Return `text` with its wildcards escaped by a backslash, for a LIKE pattern."""
    return text.translate(_LIKE_ESCAPES)


# Titles

MAX_TITLE_LENGTH: Final = 100
"""Code points of a cleaned title."""

_SPACING_CONTROLS: Final = {ord(sign) for sign in "\t\n\r"}
_INVISIBLE: Final = dict.fromkeys(
    {*range(0x20), 0x7F} - _SPACING_CONTROLS
    | {*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x206A)}
    | {0xFEFF, *range(0xFFF9, 0xFFFD)}
)
"""Control characters, zero-width ones, and those that turn the direction of text around them."""


def sanitize_title(title: str | None) -> str | None:
    """Return a title as it is stored: one line, single spaces, nothing invisible; None for none.

    Raises ValueError when more than 100 characters are left, TypeError for what is no text.
    """
    if not title:
        return None
    if not isinstance(title, str):
        raise TypeError(f"a title is text or None, not {type(title).__name__}")
    cleaned = " ".join(without_surrogates(title).translate(_INVISIBLE).split())
    if len(cleaned) > MAX_TITLE_LENGTH:
        raise ValueError(
            f"Title too long: {len(cleaned)} characters, at most {MAX_TITLE_LENGTH}; shorten it"
        )
    return cleaned or None


# model_config


def encode_config(config: Mapping[str, Any] | str, *, compact: bool = False) -> str:
    """Return `model_config` as JSON text; NaN and infinities become null.

    Raises TypeError when a value is nothing that JSON can hold.
    """
    separators = _COMPACT if compact else None
    try:
        try:
            return json.dumps(config, allow_nan=False, separators=separators)
        except ValueError:
            finite = json.loads(json.dumps(config), parse_constant=lambda _: None)
            return json.dumps(finite, allow_nan=False, separators=separators)
    except (ValueError, RecursionError):
        raise TypeError("model_config cannot be JSON: it is circular or nested too deep") from None


def decode_config(stored: str | None) -> JsonObject | None:
    """Return a stored `model_config`; None for NULL and for text that is no JSON object."""
    if not stored:
        return None
    try:
        config = json.loads(stored, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
