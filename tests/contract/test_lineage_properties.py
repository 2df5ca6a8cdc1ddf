"""Walks over random sessions equal what the rules of lineage say, step by step."""

import random
from collections.abc import Callable

import pytest

from hermes_orm import SessionDB
from tests.contract.stories import Story
from tests.contract.worlds import Row, World


def path(row: Row, step: Callable[[Row], Row | None]) -> list[Row]:
    """The session and what follows it, each once."""
    found = [row]
    while (following := step(found[-1])) and following not in found:
        found.append(following)
    return found


class Walks(World):
    """The walks of the specification."""

    @staticmethod
    def _session(chance: random.Random, name: str, names: list[str]) -> Row:
        """A session; mostly one of several that carry an earlier one on."""
        row = World._session(chance, name, names)
        if chance.random() < 0.9:
            row["parent_session_id"] = chance.choice([*names[: names.index(name)][:3], None])
        if chance.random() < 0.6:
            row |= {"source": "cli", "model_config": "{}"}
        return row

    def parent(self, row: Row) -> Row | None:
        return self.rows.get(row["parent_session_id"])

    def root(self, row: Row) -> Row | None:
        """The session without a parent at the top; None when the walk enters a ring."""
        top = path(row, self.parent)[-1]
        return None if self.parent(top) else top

    def children(self, row: Row) -> list[Row]:
        return [child for child in self.rows.values() if self.parent(child) is row]

    def lineage(self, row: Row) -> list[Row]:
        above = path(row, self.continues)
        down = path(above[-1], self.first_continuation)
        return down if row in down else above[::-1]

    def first_continuation(self, row: Row) -> Row | None:
        children = filter(self.continues, self.children(row))
        return min(children, key=self.by_start, default=None)

    def resumed(self, row: Row) -> Row:
        below = path(self.rows[self.tip(row)], self.resumed_child)
        spoken = [session for session in below if session["message_count"]]
        return spoken[-1] if spoken else below[0]

    def resumed_child(self, row: Row) -> Row | None:
        children = [
            child
            for child in self.children(row)
            if child["source"] != "tool"
            and not self.is_bound(child, row, "_delegate_from")
            and not self.is_branch(child, row)
            and not self.is_reset(child, row)
        ]
        return max(children, key=self.by_start, default=None)

    def live_child(self, row: Row) -> Row | None:
        """The only open session that carries on an ended one."""
        children = filter(self.continues, self.children(row))
        live = [child for child in children if child["ended_at"] is None]
        return live[0] if len(live) == 1 and row["ended_at"] is not None else None


@pytest.mark.parametrize("seeds", [range(n, n + 10) for n in range(100, 160, 10)], ids=str)
async def test_walks_follow_the_rules(db: SessionDB, story: Story, seeds: range) -> None:
    for seed in seeds:
        walks = Walks(seed)
        await story.raw.execute("DELETE FROM messages")
        await story.raw.execute("UPDATE sessions SET parent_session_id = NULL")
        await story.raw.execute("DELETE FROM sessions")
        for number, row in enumerate(walks.rows.values()):
            row["message_count"] = int((seed + number) % 3 > 0)
        await story.insert("sessions", *walks.rows.values())
        await story.raw.execute(
            "INSERT INTO messages (session_id, role, timestamp) "
            "SELECT id, 'user', coalesce(last_activity_at, started_at) "
            "FROM sessions WHERE message_count > 0"
        )
        for key, row in walks.rows.items():
            carries_on = await db._is_compression_child_row(await db.get_session(key))
            assert carries_on == (walks.continues(row) is not None), (seed, key)
            live = await db.find_live_compression_child(key)
            assert (live and live["id"]) == ((child := walks.live_child(row)) and child["id"])
            root = await db.get_conversation_root(key)
            if top := walks.root(row):
                tip, resumed = walks.tip(row), walks.resumed(row)
                assert root == top["id"], (seed, key)
                assert await db.get_compression_tip(key) == tip, (seed, key)
                assert await db.resolve_resume_session_id(key) == resumed["id"], (seed, key)
                lineage = [segment["id"] for segment in walks.lineage(row)]
                assert await db.get_compression_lineage(key) == lineage, (seed, key)
            else:
                assert walks.root(walks.rows[root]) is None, (seed, key)
                found = [await db.get_compression_tip(key), await db.resolve_resume_session_id(key)]
                lineage = await db.get_compression_lineage(key)
                assert set(found) <= walks.rows.keys(), (seed, key)
                assert key in lineage and len(set(lineage)) == len(lineage), (seed, key)
