"""The schema of a SQLite file as sets, whatever the order of columns and the wording of DDL."""

from typing import Any

from tests.raw import Raw

PRAGMAS = {
    "columns": 'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?)',
    "foreign keys": 'SELECT "from", "table", "to", on_update, on_delete'
    " FROM pragma_foreign_key_list(?)",
    "indexes": 'SELECT l.name, l."unique", l.origin, l.partial, x.seqno, x.name, x."desc", x.coll'
    " FROM pragma_index_list(?) AS l JOIN pragma_index_xinfo(l.name) AS x WHERE x.key",
}


async def shape(path: object) -> dict[str, set[Any]]:
    """Return the objects of a file, and for each table what SQLite knows about it."""
    raw = Raw(str(path))
    objects = await raw.fetch("SELECT type, name FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*'")
    found: dict[str, set[Any]] = {"objects": {tuple(row) for row in objects}}
    for kind, name in objects:
        if kind == "table":
            for what, query in PRAGMAS.items():
                rows = await raw.fetch(query, name)
                found[f"{what} of {name}"] = {tuple(row) for row in rows}
    return found


def differences(one: dict[str, set[Any]], other: dict[str, set[Any]]) -> dict[str, list[Any]]:
    """Return what only one of two shapes has."""
    parts = {name: one.get(name, set()) ^ other.get(name, set()) for name in one | other}
    return {name: sorted(map(str, part)) for name, part in parts.items() if part}
