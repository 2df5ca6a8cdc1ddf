"""Text of session rows: stored arguments, ids and keys, `model_config`."""

import json
import string
from collections.abc import Mapping
from typing import Any, Final

from hermes_orm.codec import encode_text, is_encodable, plain_text
from hermes_orm.rows import JsonObject

_COMPACT: Final = (",", ":")

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

    Raises ValueError when it holds U+0000 or a lone surrogate; `name` says what it is.
    """
    key = lookup_key(value)
    if key is None:
        raise ValueError(
            f"a {name} cannot be None or hold U+0000 or a lone surrogate; remove them first"
        )
    return key


_LOWER: Final = {ord(capital): capital.lower() for capital in string.ascii_uppercase}
_LIKE_ESCAPES: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\%_"})


def fold_ascii(text: str) -> str:
    """Return `text` with A to Z lowered, as the databases' lower() does it; other letters stay."""
    return text.translate(_LOWER)


def escape_like(text: str) -> str:
    """Return `text` with its wildcards escaped by a backslash, for a LIKE pattern."""
    return text.translate(_LIKE_ESCAPES)


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
