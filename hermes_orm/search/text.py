"""What of a message is searched and shown: the decoded text, cut to the indexed prefix."""

from collections.abc import Iterator
from typing import Final

from hermes_orm.codec import without_surrogates

INDEXED_CHARACTERS: Final = 65_536
"""How much of a message is searched: characters of its three columns in total."""

INDEXED_TOOL_CHARACTERS: Final = 8_192
"""How much of the content of a tool row is searched."""

CONTEXT_CHARACTERS: Final = 200
MULTIMODAL: Final = "[multimodal content]"


def search_text(content: object, role: str) -> str:
    """Return the searched text of decoded content, cut to the indexed prefix.

    That is a string itself and, of a list, the text parts joined by blanks; else "". The result
    is storable on every database: U+0000 is a blank, a lone surrogate U+FFFD.
    """
    limit = INDEXED_TOOL_CHARACTERS if role == "tool" else INDEXED_CHARACTERS
    return _storable(_text(content)[:limit])


def whole_text(content: object) -> str:
    """Return the text of decoded content as `search_text` does, but all of it."""
    return _storable(_text(content))


def search_columns(
    content: object, tool_name: str | None, tool_calls: str | None, role: str
) -> tuple[str, str, str]:
    """Return the searched text of the three columns, in the order in which they are searched.

    `content` is decoded, `tool_calls` the stored JSON.
    """
    text = search_text(content, role)
    left = INDEXED_CHARACTERS - len(text)
    name = (tool_name or "")[:left]
    return text, name, (tool_calls or "")[: left - len(name)]


def context_text(content: object) -> str:
    """Return the first 200 characters of decoded content, as the context of a hit shows it."""
    if isinstance(content, str):
        return content[:CONTEXT_CHARACTERS]
    if not isinstance(content, list | tuple):
        return ""
    return " ".join(_text_parts(content)).strip()[:CONTEXT_CHARACTERS] or MULTIMODAL


def _text(content: object) -> str:
    return content if isinstance(content, str) else " ".join(_text_parts(content))


def _storable(text: str) -> str:
    return without_surrogates(text.replace("\0", " "))


def _text_parts(content: object) -> Iterator[str]:
    """The texts of structured content."""
    if isinstance(content, list | tuple):
        for part in content:
            if isinstance(part, dict) and part.get("type") == "text":
                text = part.get("text")
                if isinstance(text, str):
                    yield text
