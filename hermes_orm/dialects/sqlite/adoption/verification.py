"""Proof that a migrated file is whole; a failure undoes the migration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

from hermes_orm.dialects.sqlite.adoption import census
from hermes_orm.dialects.sqlite.adoption.fingerprint import missing_columns
from hermes_orm.errors import SchemaError


@dataclass(frozen=True)
class Inventory:
    """What a file holds."""

    rows: dict[str, int]
    repairs: Counter[str]
    violations: Counter[str]

    @classmethod
    def take(cls, driver: Any, unchanged: Set[str] = frozenset()) -> Inventory:
        """Count what the file holds now; repairs of `unchanged` tables are none."""
        return cls(
            census.row_counts(driver),
            census.repair_counts(driver, unchanged),
            census.violations(driver),
        )


def verify(
    driver: Any, before: Inventory, after: Inventory, found: list[str], *, is_head: bool
) -> None:
    """Raise SchemaError unless the file is complete, lost nothing and no damage was `found`."""
    problems = [*_lost_rows(before, after), *found]
    if is_head:
        problems += [f"{name} is missing" for name in sorted(missing_columns(driver))]
    if problems:
        raise SchemaError(
            f"the migrated file failed its checks ({'; '.join(problems[:3])}): nothing was "
            "changed; check the file with hermes-orm db check, or recover it"
        )


def _lost_rows(before: Inventory, after: Inventory) -> list[str]:
    counts = [
        f"{table} had {number} rows, now {after.rows.get(table, 0)}"
        for table, number in before.rows.items()
        if after.rows.get(table) != number
    ]
    # A reference that was not declared before is no harm of this migration.
    broken = [
        f"{number} more rows of {relation} refer to nothing"
        for relation, number in (after.violations - before.violations).items()
        if relation.endswith("-> sessions")
    ]
    return counts + broken


def damage(driver: Any, tables: Iterable[str]) -> list[str]:
    """Check tables, and the trees of their indexes; return what is wrong.

    Indexes are not compared with their tables: those of the migration were made from the rows in
    this very transaction, by SQLite itself. Full-text tables are either made anew or put aside.
    """
    rows = [
        row
        for table in sorted(tables)
        for row in driver.execute(f"PRAGMA quick_check('{table}')").fetchmany(3)
    ]
    return [str(row[0]) for row in rows if row[0] != "ok"]
