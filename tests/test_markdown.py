"""A session as Markdown."""

from typing import Any

import pytest

from hermes_orm import SessionDB
from hermes_orm.services.markdown import session_markdown
from tests.contract.turns import assistant, tool, user


@pytest.fixture
async def exported(tmp_path: Any) -> Any:
    async with SessionDB(tmp_path / "state.db") as db:
        await db.create_session("s", "cli", model="m", system_prompt="be brief", cwd="/w")
        await db.set_session_title("s", "A title")
        call = {"id": "c1", "function": {"name": "read", "arguments": '{"path": "é"}'}}
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
        await db.append_messages_batch(
            "s",
            [
                user([{"type": "text", "text": "look"}, image], timestamp=0),
                assistant(None, tool_calls=[call], reasoning="first\nthen", timestamp=1),
                tool("has ``` and ````", "c1", tool_name="read", timestamp=2),
                assistant("done", timestamp=3),
            ],
        )
        await db.end_session("s", "compression")
        await db.create_session("tip", "cli", parent_session_id="s")
        await db.append_message("tip", "user", "go on", timestamp=4)
        return await db.export_session("s"), await db.export_session_lineage("s")


def test_session(exported: Any) -> None:
    text = session_markdown(exported[0])
    assert text.startswith("# A title\n\n- **Session:** `s`\n- **Source:** cli\n- **Model:** m\n")
    assert "(compression)" in text
    assert "- **Messages:** 4\n" in text
    expected = """\
## System prompt

```text
be brief
```

## User · 1970-01-01 00:00:00 UTC

look

*[image_url]*

## Assistant · 1970-01-01 00:00:01 UTC

> first
> then

Calls `read`:

```json
{
  "path": "é"
}
```

## Tool `read` · 1970-01-01 00:00:02 UTC

`````text
has ``` and ````
`````

## Assistant · 1970-01-01 00:00:03 UTC

done
"""
    assert text.endswith(expected)


def test_lineage(exported: Any) -> None:
    text = session_markdown(exported[1])
    assert text.startswith("# tip\n")
    assert text.count("---") == 2
    assert text.index("*Session `s`, ") < text.index("look") < text.index("*Session `tip`, ")
    assert text.endswith("## User · 1970-01-01 00:00:04 UTC\n\ngo on\n")


@pytest.mark.parametrize(
    ("content", "calls", "shown"),
    [
        ({"k": 1}, None, '```json\n{\n  "k": 1\n}\n```'),
        (["a", {"type": "text", "text": "b"}, 5], None, "a\n\nb\n\n```json\n5\n```"),
        ("", {"odd": 1}, '```json\n{\n  "odd": 1\n}\n```'),
        (None, [{"function": {"name": "f", "arguments": "no json"}}], "```text\nno json\n```"),
    ],
)
def test_odd_messages(exported: Any, content: Any, calls: Any, shown: str) -> None:
    session = exported[0]
    message = {**session["messages"][0], "content": content, "tool_calls": calls, "timestamp": None}
    odd: Any = {**session, "messages": [message], "title": None, "started_at": None}
    text = session_markdown(odd)
    assert text.endswith(f"{shown}\n")
    assert text.startswith("# s\n")
    assert "## User\n" in text
