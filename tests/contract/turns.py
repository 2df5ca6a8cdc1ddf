"""Messages as the worked examples write them."""

from typing import Any


def user(content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **keys}


def assistant(content: Any, *call_ids: str, **keys: Any) -> dict[str, Any]:
    """An assistant message; with ids, one that calls tools."""
    calls = {"tool_calls": [{"id": call_id} for call_id in call_ids]} if call_ids else {}
    return {"role": "assistant", "content": content, **calls, **keys}


def tool(content: Any, call_id: str, **keys: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id, **keys}


def contents(messages: Any) -> list[Any]:
    return [message["content"] for message in messages]
