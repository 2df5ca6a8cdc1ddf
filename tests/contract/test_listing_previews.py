"""What a list shows of a transcript."""

from typing import Any

import pytest

from hermes_orm import SessionDB
from hermes_orm.codec import encode_content
from tests.contract.stories import Story

P = "[IMPORTANT: The user has invoked the "
LOADED = "The full skill content is loaded below.]"
LEAD = "The user has provided the following instruction alongside the skill invocation: "
SINGLE = f'{P}"work" skill. {LOADED}\n\nBODY\n\n'
BUNDLE = f'{P}"pack" skill bundle, which loads 2 skills.]'
NOTE = "\n\n[Runtime note: x]"


@pytest.fixture
def story(raw: Any) -> Story:
    return Story(raw)


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
async def test_first_user_message(db: SessionDB, story: Story, content: Any, preview: str) -> None:
    stored = encode_content(db.database.dialect.content_marker, content)
    await story.new("s")
    await story.msg("s", stored, 1)
    (row,) = await db.list_sessions_rich()
    assert row["preview"] == preview
