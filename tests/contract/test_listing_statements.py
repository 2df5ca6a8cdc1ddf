"""How many statements a list sends, whatever it shows."""

from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.contract.conftest import Sent
from tests.contract.stories import Story, ids


@pytest.mark.parametrize("roots", [1, 12])
async def test_statements_do_not_depend_on_the_rows(
    db: SessionDB, story: Story, sent: Sent, roots: int
) -> None:
    for at in range(roots):
        await story.new(f"root{at}", at, pinned=at % 2)
        await story.end(f"root{at}", "compression", at)
        await story.new(f"tip{at}", at, parent=f"root{at}")
        await db.append_message(f"tip{at}", "user", "hi", timestamp=100.0 + at)

    async def statements(**options: Any) -> int:
        sent()
        assert await db.list_sessions_rich(limit=10, **options)
        return sent()

    assert await statements() == 1
    assert await statements(include_pinned=True, search_query="root", source="cli") == 1
    carried = int(roots > 10)  # some roots are older than the slice that their tips are in
    assert await statements(order_by_last_active=True) == 2 + carried, "a slice, then the rows"
    assert await statements(order_by_last_active=True, include_pinned=True) == 3 + carried


async def test_rare_sessions_are_found_in_slices_that_grow(
    db: SessionDB, story: Story, sent: Sent
) -> None:
    await story.new("rare", 0, source="tg")
    for at in range(1, 40):
        await story.new(f"s{at}", at)
    sent()
    rows = await db.list_sessions_rich(source="tg", limit=1, order_by_last_active=True)
    assert ids(rows) == ["rare"]
    assert sent() == 4, "slices of 2, 16 and 128 sessions, then the row"
