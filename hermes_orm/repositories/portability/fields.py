"""Fields of imported sessions and messages: of what type they must be, and what is stored."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StrictStr, ValidationError

from hermes_orm import clock
from hermes_orm.codec import encode_integer, encode_timestamp
from hermes_orm.repositories.portability.entries import Rejected
from hermes_orm.session_text import indexed_text, sanitize_title, session_text


def _integer(value: object) -> int | None:
    number = encode_integer(value)
    if number is None and value is not None:
        raise ValueError("token_count must be an integer")
    return number


def _count(value: object) -> int:
    return encode_integer(value) or 0


def _cost(value: Any) -> float | None:
    try:
        cost = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return cost if math.isfinite(cost) else None


def _start(value: object) -> float:
    return encode_timestamp(value, clock.now())


def _end(value: object) -> float | None:
    ended_at = encode_timestamp(value, math.nan)
    return None if math.isnan(ended_at) else ended_at


Text = Annotated[StrictStr | None, AfterValidator(session_text)]
Key = Annotated[StrictStr | None, AfterValidator(lambda value: indexed_text(value, "key"))]
Count = Annotated[int, BeforeValidator(_count)]
Cost = Annotated[float | None, BeforeValidator(_cost)]


class MessageFields(BaseModel):
    """What is checked of a message, in this order; the rules for batches do the rest."""

    role: Annotated[StrictStr, Field(min_length=1)]
    tool_call_id: StrictStr | None = None
    tool_name: StrictStr | None = None
    effect_disposition: StrictStr | None = None
    finish_reason: StrictStr | None = None
    reasoning: StrictStr | None = None
    reasoning_content: StrictStr | None = None
    platform_message_id: StrictStr | None = None
    message_id: StrictStr | None = None
    token_count: Annotated[int | None, BeforeValidator(_integer)] = None


class SessionFields(BaseModel):
    """What is taken over of a session, checked in this order; numbers that are none are ignored."""

    parent_session_id: StrictStr | None = None
    source: Key = None
    user_id: Key = None
    model: Key = None
    system_prompt: Text = None
    end_reason: Text = None
    cwd: Text = None
    git_branch: Text = None
    git_repo_root: Text = None
    billing_provider: Key = None
    billing_base_url: Key = None
    billing_mode: Key = None
    cost_status: Text = None
    cost_source: Text = None
    pricing_version: Text = None
    title: Annotated[StrictStr | None, AfterValidator(sanitize_title)] = None
    started_at: Annotated[float, BeforeValidator(_start)] = Field(None, validate_default=True)
    ended_at: Annotated[float | None, BeforeValidator(_end)] = None
    estimated_cost_usd: Cost = None
    actual_cost_usd: Cost = None
    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_tokens: Count = 0
    cache_write_tokens: Count = 0
    reasoning_tokens: Count = 0
    api_call_count: Count = 0
    archived: Annotated[int, BeforeValidator(lambda value: int(bool(value)))] = 0


def of_session(entry: dict[Any, Any]) -> dict[str, Any]:
    """Return the values that are taken over of a session; raise Rejected."""
    try:
        return SessionFields.model_validate(entry).model_dump()
    except ValidationError as error:
        raise Rejected(_first_fault(error)) from None


def check_message(position: int, message: dict[Any, Any]) -> None:
    """Raise Rejected for a message that cannot be imported."""
    try:
        MessageFields.model_validate(message)
    except ValidationError as error:
        raise Rejected(_first_fault(error, position)) from None


def _first_fault(error: ValidationError, position: int | None = None) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    name = fault["loc"][0]
    if position is not None and name == "role":
        return f"messages[{position}].role must be a non-empty string"
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    return f"{name} must be a string"
