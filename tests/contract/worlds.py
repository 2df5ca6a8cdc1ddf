"""Random sessions, and what the rules of lineage say about them in plain words."""

import json
import random
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
MARKERS = ("_branched_from", "_delegate_from", "_reset_from")


class World:
    """Sessions with random parents, ends and markers, and the rules in plain words."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        names = [f"s{number}" for number in range(chance.randint(1, 14))]
        self.rows = {name: self._session(chance, name, names) for name in names}

    @staticmethod
    def _session(chance: random.Random, name: str, names: list[str]) -> Row:
        parent = chance.choice([None, *names]) if chance.random() < 0.75 else None
        markers = {key: chance.choice([parent, "s0"]) for key in MARKERS if chance.random() < 0.12}
        return {
            "id": name,
            "source": chance.choice(["cli", "cli", "cli", "tool"]),
            "parent_session_id": parent,
            "started_at": float(chance.randint(0, 5)),
            "ended_at": chance.choice([None, 2.0, 3.0]),
            "end_reason": chance.choice(["compression"] * 4 + ["branched", "idle", None]),
            "session_key": chance.choice([None, "", "k"]),
            "last_activity_at": chance.choice([None, *map(float, range(9))]),
            "archived": int(chance.random() < 0.1),
            "model_config": json.dumps(markers) if chance.random() < 0.8 else "{bad",
        }

    def marker(self, row: Row, key: str) -> str | None:
        try:
            value: str | None = json.loads(row["model_config"]).get(key)
        except ValueError:
            return None
        return value

    def is_bound(self, row: Row, parent: Row, key: str) -> bool:
        own = self.marker(row, key)
        return own is not None and (own != self.marker(parent, key) or own == parent["id"])

    def continues(self, row: Row) -> Row | None:
        """The parent that the session carries on."""
        parent = self.rows.get(row["parent_session_id"])
        if parent is None or parent["end_reason"] != "compression" or row["source"] == "tool":
            return None
        return None if any(self.is_bound(row, parent, key) for key in MARKERS) else parent

    def is_listed(self, row: Row) -> bool:
        if row["archived"] or self.marker(row, "_delegate_from") is not None:
            return False
        parent = self.rows.get(row["parent_session_id"])
        return parent is None or self.is_branch(row, parent) or self.is_reset(row, parent)

    def is_branch(self, row: Row, parent: Row) -> bool:
        is_late = parent["ended_at"] is not None and row["started_at"] >= parent["ended_at"]
        is_old_branch = parent["end_reason"] == "branched" and is_late
        return is_old_branch or self.is_bound(row, parent, "_branched_from")

    def is_reset(self, row: Row, parent: Row) -> bool:
        has_its_key = row["session_key"] == parent["session_key"] == "k"
        is_old_reset = parent["end_reason"] == "idle" and has_its_key
        return is_old_reset or self.is_bound(row, parent, "_reset_from")

    def active(self, row: Row) -> float:
        at: float | None = row["last_activity_at"]
        return row["started_at"] if at is None else at

    def tip(self, row: Row) -> str:
        seen = {row["id"]}
        while children := [child for child in self.rows.values() if self.continues(child) is row]:
            row = max(children, key=self._preference)
            if row["id"] in seen:
                break
            seen.add(row["id"])
        return str(row["id"])

    def _preference(self, row: Row) -> tuple[int, float, float, str]:
        state = 2 if row["end_reason"] == "compression" else int(row["ended_at"] is None)
        return state, self.active(row), row["started_at"], row["id"]

    def below(self, row: Row) -> dict[str, Row]:
        """The session and all that carries it on, however indirectly."""
        found = {row["id"]: row}
        while more := [
            child
            for child in self.rows.values()
            if (parent := self.continues(child))
            and parent["id"] in found
            and child["id"] not in found
        ]:
            found |= {child["id"]: child for child in more}
        return found

    def by_start(self, row: Row) -> tuple[float, str]:
        return row["started_at"], row["id"]

    def by_activity(self, row: Row) -> tuple[float, float, str]:
        latest = max(self.active(member) for member in self.below(row).values())
        return latest, row["started_at"], row["id"]

    def listing(self, order: Callable[[Row], Any], *, everything: bool) -> list[Row]:
        rows = [row for row in self.rows.values() if everything or self.is_listed(row)]
        return sorted(rows, key=order, reverse=True)
