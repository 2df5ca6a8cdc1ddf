"""What a listing shows of a session: how its first user message begins, or the skill it invoked."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    SQLColumnExpression,
    and_,
    case,
    func,
    or_,
    select,
)

from hermes_orm.codec import MARKER_LENGTH, decode_content
from hermes_orm.dialects.expressions import leading_text
from hermes_orm.models import Message

SCAFFOLD_PREFIX: Final = "[IMPORTANT: The user has invoked the "
"""How a user message begins that the agent has built around a skill."""

_SINGLE_SKILL: Final = "The full skill content is loaded below.]"
_INSTRUCTION_LEAD: Final = (
    "The user has provided the following instruction alongside the skill invocation: "
)
_RUNTIME_NOTE: Final = "\n\n[Runtime note:"
_BUNDLE: Final = " skill bundle,"
_BUNDLE_INSTRUCTION: Final = "\nUser instruction: "
_BUNDLE_BODY: Final = "\n\n[Loaded as part of the "
_EXCERPT_JOINT: Final = "\x1e"

_EXCERPT_LENGTH: Final = 63
_PREVIEW_LENGTH: Final = 60
_SHORT_PREVIEW_LENGTH: Final = 80


def first_user_text(session_id: SQLColumnExpression[Any]) -> ColumnElement[str | None]:
    """Return the stored text that `preview_of` takes, of one session; NULL when it has none.

    Undone messages do not count. Only skill scaffolds and structured content, which a control
    character introduces, come whole.
    """
    content = Message.content
    is_whole = or_(is_scaffold(content), content < " ")
    text = case((is_whole, content), else_=leading_text(content, _EXCERPT_LENGTH))
    return first_of_user(session_id, text)


def first_of_user(
    session_id: SQLColumnExpression[Any], value: SQLColumnExpression[Any]
) -> ScalarSelect[Any]:
    """Return a value of the first user message with content that is not undone, or NULL."""
    return (
        select(value)
        .where(
            Message.session_id == session_id,
            Message.role == "user",
            Message.content.is_not(None),
            or_(Message.active != 0, Message.compacted != 0),
        )
        .order_by(Message.timestamp, Message.id)
        .limit(1)
        .scalar_subquery()
    )


def is_scaffold(content: SQLColumnExpression[Any]) -> ColumnElement[bool]:
    """Whether stored content is a skill scaffold; case counts."""
    return func.substr(content, 1, len(SCAFFOLD_PREFIX)) == SCAFFOLD_PREFIX


def is_encoded_scaffold(content: SQLColumnExpression[Any]) -> ColumnElement[bool]:
    """Whether stored content is the JSON of a skill scaffold, as of one with U+0000."""
    begin = f'"{SCAFFOLD_PREFIX}'
    return and_(content < " ", func.substr(content, MARKER_LENGTH + 1, len(begin)) == begin)


def preview_of(stored: str | bytes | None) -> str:
    """Return the preview of stored message content: one line of at most 60 characters and `...`."""
    content = decode_content(stored)
    text = content if isinstance(content, str) else _text_of_parts(content)
    preview = _described_scaffold(text) or _excerpt(text)
    return preview if len(preview) <= _PREVIEW_LENGTH else preview[:_PREVIEW_LENGTH] + "..."


def short_preview_of(stored: str | bytes | None) -> str:
    """Return the preview of a user message to go back to: one line of at most 80 characters."""
    content = decode_content(stored)
    if isinstance(content, str):
        text = _described_scaffold(content) or content
    else:
        text = _text_of_parts(content) or "[multimodal content]" * isinstance(content, list)
    line = " ".join(text.split())
    is_short = len(line) <= _SHORT_PREVIEW_LENGTH
    return line if is_short else line[: _SHORT_PREVIEW_LENGTH - 3] + "..."


def _text_of_parts(content: object) -> str:
    if not isinstance(content, list):
        return ""
    parts = (part for part in content if isinstance(part, dict))
    texts = (part.get("text") for part in parts if part.get("type") == "text")
    return " ".join(text for text in texts if text and isinstance(text, str))


def _excerpt(text: str) -> str:
    line = text[:_EXCERPT_LENGTH].replace("\r", " ").replace("\n", " ").strip()
    return line.partition(_EXCERPT_JOINT)[0]


def _described_scaffold(text: str) -> str:
    """Return `/skill — instruction`, or what there is of it; empty when the text is no scaffold."""
    if not text.startswith(SCAFFOLD_PREFIX):
        return ""
    instruction = " ".join(_instruction(text).partition(_EXCERPT_JOINT)[0].split())
    label = _label(text.removeprefix(SCAFFOLD_PREFIX))
    return " — ".join(part for part in (label, instruction) if part)


def _label(invoked: str) -> str:
    """Return the quoted name that the text begins with, as a command."""
    before, _, rest = invoked.partition('"')
    name, closed, _ = rest.partition('"')
    name = name.strip()
    if before or not closed or not name:
        return ""
    return name if name.startswith("/") else f"/{name}"


def _instruction(text: str) -> str:
    if _BUNDLE in text:
        return text.partition(_BUNDLE_INSTRUCTION)[2].partition(_BUNDLE_BODY)[0]
    if _SINGLE_SKILL not in text:
        return ""
    _, lead, instruction = text.rpartition(_INSTRUCTION_LEAD)
    return instruction.partition(_RUNTIME_NOTE)[0] if lead else ""
