"""The schema of a SQLite file as sets, whatever the order of columns and the wording of DDL."""

from collections import defaultdict
from typing import Any

from tests.raw import Raw

TABLES = "FROM sqlite_schema AS t JOIN"
PRAGMAS = {
    "columns": 'SELECT t.name, x.name, x.type, "notnull", dflt_value, pk, hidden '
    f"{TABLES} pragma_table_xinfo(t.name) AS x WHERE t.type = 'table'",
    "foreign keys": 'SELECT t.name, "from", "table", "to", on_update, on_delete '
    f"{TABLES} pragma_foreign_key_list(t.name) WHERE t.type = 'table'",
    "indexes": 'SELECT t.name, l.name, l."unique", l.origin, l.partial, x.seqno, x.name, x."desc",'
    f" x.coll {TABLES} pragma_index_list(t.name) AS l JOIN pragma_index_xinfo(l.name) AS x"
    " WHERE t.type = 'table' AND x.key",
}


async def shape(path: object) -> dict[str, set[Any]]:
    """Return the objects of a file, and for each table what SQLite knows about it."""
    raw = Raw(str(path))
    objects = await raw.fetch("SELECT type, name FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*'")
    found: dict[str, set[Any]] = defaultdict(set, objects={tuple(row) for row in objects})
    for what, query in PRAGMAS.items():
        for name, *facts in await raw.fetch(query):
            found[f"{what} of {name}"].add(tuple(facts))
    return found


def differences(one: dict[str, set[Any]], other: dict[str, set[Any]]) -> dict[str, list[Any]]:
    """Return what only one of two shapes has."""
    parts = {name: one.get(name, set()) ^ other.get(name, set()) for name in one | other}
    return {name: sorted(map(str, part)) for name, part in parts.items() if part}
