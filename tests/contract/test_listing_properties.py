"""Lists of random conversations equal what the rules of lineage say, read one by one."""

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import Story, ids
from tests.contract.worlds import Row, World


def likeness(world: World, row: Row, query: str) -> int:
    """How well the likest id of a conversation matches: 0 when it is the query itself."""
    names = (name for name in world.below(row) if query in name)
    return min(2 - name.startswith(query) - (name == query) for name in names)


@pytest.mark.parametrize("seeds", [range(n, n + 10) for n in range(0, 40, 10)], ids=str)
async def test_lists_follow_the_rules(db: SessionDB, story: Story, seeds: range) -> None:
    for seed in seeds:
        world = World(seed)
        await story.raw.execute("UPDATE sessions SET parent_session_id = NULL")
        await story.raw.execute("DELETE FROM sessions")
        await story.insert("sessions", *world.rows.values())
        for by_activity, order in ((False, world.by_start), (True, world.by_activity)):
            for everything in (False, True):
                expected = world.listing(order, everything=everything)
                listed = await db.list_sessions_rich(
                    limit=3,
                    offset=seed % 3,
                    order_by_last_active=by_activity,
                    include_children=everything,
                    include_archived=everything,
                )
                page = expected[seed % 3 :][:3]
                roots = [row.get("_lineage_root_id", row["id"]) for row in listed]
                assert roots == [row["id"] for row in page], (seed, by_activity, everything)
                if not everything:
                    assert ids(listed) == [world.tip(row) for row in page], seed
                found = await db.list_sessions_rich(
                    limit=None,
                    id_query="S1",
                    order_by_last_active=by_activity,
                    include_children=everything,
                    include_archived=everything,
                    project_compression_tips=False,
                )
                holding = [
                    row for row in expected if any("s1" in name for name in world.below(row))
                ]
                assert ids(found) == ids(holding), (seed, by_activity, everything)
                if by_activity and not everything:
                    holding.sort(key=lambda row: likeness(world, row, "s1"))
                    likest = await db.search_sessions_by_id("S1", 2, include_archived=False)
                    assert ids(likest) == [world.tip(row) for row in holding[:2]], seed
