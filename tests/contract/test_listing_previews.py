"""What a list shows of a transcript."""

from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import Story

P = "[IMPORTANT: The user has invoked the "
LOADED = "The full skill content is loaded below.]"
LEAD = "The user has provided the following instruction alongside the skill invocation: "
SINGLE = f'{P}"work" skill. {LOADED}\n\nBODY\n\n'
BUNDLE = f'{P}"pack" skill bundle, which loads 2 skills.]'
NOTE = "\n\n[Runtime note: x]"


def parts(*values: Any) -> list[Any]:
    return [{"type": "text", "text": value} for value in values]


@pytest.mark.parametrize(
    ("content", "preview"),
    [
        ("a\nb\r\nc", "a b  c"),
        ("a\tb", "a\tb"),
        ("x" * 60, "x" * 60),
        ("y" * 61, "y" * 60 + "..."),
        ("   lead", "lead"),
        (" " * 63 + "late", ""),
        ("shown\x1ehidden", "shown"),
        ("nul\x00inside", "nul\x00inside"),
        ("é" * 70, "é" * 60 + "..."),
        (None, ""),
        ("", ""),
        ([*parts("see"), {"type": "image"}, *parts("", "this")], "see this"),
        ([{"type": "image"}], ""),
        ({"type": "text", "text": "no list"}, ""),
        (parts(1), ""),
        (parts("a\nb", "c" * 70), ("a b " + "c" * 70)[:60] + "..."),
        ("\x00json:plain", "\x00json:plain"),
        (SINGLE + LEAD + "fix  it", "/work — fix it"),
        (SINGLE, "/work"),
        (SINGLE.replace("BODY", "b" * 5000) + LEAD + "fix it", "/work — fix it"),
        (SINGLE + LEAD + "do" + NOTE, "/work — do"),
        (SINGLE.replace("BODY", LEAD + "quoted") + LEAD + "mine", "/work — mine"),
        (SINGLE + LEAD + "a\x1eb", "/work — a"),
        (SINGLE + LEAD + "i" * 80, ("/work — " + "i" * 80)[:60] + "..."),
        (SINGLE.replace('"work"', '" /work "'), "/work"),
        (SINGLE.replace('"work"', '""') + LEAD + "alone", "alone"),
        (parts(SINGLE + LEAD + "fix it"), "/work — fix it"),
        (BUNDLE + "\nUser instruction: go\non\n\n[Loaded as part of the x]", "/pack — go on"),
        (BUNDLE + "\n\n[Loaded as part of the x]", "/pack"),
        (P + "unquoted", (P + "unquoted").strip()),
        (P.lower() + '"work" skill.', (P.lower() + '"work" skill.')),
    ],
)
async def test_first_user_message(db: SessionDB, content: Any, preview: str) -> None:
    await db.create_session("s", "cli")
    await db.append_message("s", "assistant", "greeting", timestamp=1)
    await db.append_message("s", "user", content, timestamp=2)
    (row,) = await db.list_sessions_rich()
    assert row["preview"] == preview


async def test_the_earliest_user_message_with_content_counts(db: SessionDB) -> None:
    await db.create_session("s", "cli")
    for content, at in (("third", 5.0), (None, 1.0), ("first", 2.0), ("second", 2.0)):
        await db.append_message("s", "user", content, timestamp=at)
    (row,) = await db.list_sessions_rich()
    assert row["preview"] == "first"


async def test_undone_messages_are_not_shown_but_compacted_ones_are(
    db: SessionDB, story: Story
) -> None:
    async def preview() -> str:
        (row,) = await db.list_sessions_rich()
        return row["preview"]

    await db.create_session("s", "cli")
    assert await preview() == ""
    for at, content in enumerate(["first", "second", "third"]):
        await db.append_message("s", "user", content, timestamp=float(at))
    await story.raw.execute("UPDATE messages SET active = 0 WHERE content <> 'third'")
    assert await preview() == "third"
    await story.raw.execute("UPDATE messages SET compacted = 1 WHERE content <> 'third'")
    assert await preview() == "first"
