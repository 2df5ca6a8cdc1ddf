"""How a file gets the full-text layout of a revision: derived data, made anew when it differs."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from hermes_orm.dialects.migrating import Script
from hermes_orm.dialects.sqlite.frozen.catalogue import columns
from hermes_orm.dialects.sqlite.frozen.layouts import LAYOUTS, NAMES, IndexText

_KINDS = ("trigger", "view", "table")  # in the order in which they can be dropped


def pause_search(connection: Connection | Script) -> Mapping[str, str]:
    """Drop the triggers, so that messages can be rewritten; return the definitions of all objects.

    The optional CJK index is not ours to make anew: its triggers stay.
    """
    found = {} if isinstance(connection, Script) else _definitions(connection)
    _drop(connection, "trigger")
    return found


def establish_search(
    connection: Connection | Script,
    layout: str | None,
    found: Mapping[str, str],
    *,
    deferred: bool = False,
) -> None:
    """Have the indexes of a layout, filled; `found` is what the file had when it was paused.

    With `deferred` the messages are left to a rebuild in steps, which the settings announce.
    """
    indexes = LAYOUTS[layout]
    wanted = {_name(sql): _normal(sql) for i in indexes for sql in (*i.objects, *i.triggers)}
    if found and found == wanted:
        for index in indexes:
            _run(connection, *index.triggers)
        return
    for kind in _KINDS:
        _drop(connection, kind)
    for index in indexes:
        if _create(connection, index) and not deferred:
            _run(connection, index.fill)
    _describe(connection, layout, deferred)


def _create(connection: Connection | Script, index: IndexText) -> bool:
    try:
        _run(connection, *index.objects, *index.triggers)
    except OperationalError as error:
        if "no such module" in str(error.orig) or "no such tokenizer" in str(error.orig):
            return False  # this SQLite lacks it: searches then read the messages themselves
        raise
    return True


def _describe(connection: Connection | Script, layout: str | None, deferred: bool) -> None:
    """Bring the settings about the layout up to date, where the file has any."""
    if isinstance(connection, Script) or not columns(connection, "state_meta"):
        return
    _run(
        connection,
        "DELETE FROM state_meta WHERE key IN ('fts_rebuild_high_water', 'fts_rebuild_progress', "
        "'fts_optimize_available', 'fts_stale', 'fts_rebuild_deferral', "
        "'fts_tool_full_content_high_water')",
    )
    if layout in ("1", "2", "3"):
        _run(
            connection,
            f"UPDATE state_meta SET value = '{layout}' WHERE key = 'fts_storage_version'",
        )
    else:
        _run(connection, "DELETE FROM state_meta WHERE key = 'fts_storage_version'")
    if deferred:
        _run(
            connection,
            "INSERT INTO state_meta (key, value) "
            "SELECT 'fts_rebuild_high_water', CAST(max(id) AS TEXT) FROM messages "
            "HAVING max(id) IS NOT NULL",
            "INSERT INTO state_meta (key, value) SELECT 'fts_rebuild_progress', '0' "
            "WHERE EXISTS (SELECT 1 FROM messages)",
        )


def _definitions(connection: Connection) -> dict[str, str]:
    query = text("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {row[0]: _normal(row[1]) for row in connection.execute(query) if row[0] in NAMES}


def _drop(connection: Connection | Script, kind: str) -> None:
    if isinstance(connection, Script):
        names = sorted(name for name in NAMES if _kind(name) == kind)
    else:
        query = text("SELECT name FROM sqlite_schema WHERE type = :kind ORDER BY name")
        names = [name for name in connection.scalars(query, {"kind": kind}) if name in NAMES]
    _run(connection, *(f"DROP {kind} IF EXISTS {name}" for name in names))


def _run(connection: Connection | Script, *statements: str) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)


def _kind(name: str) -> str:
    if name.endswith("_src"):
        return "view"
    return "trigger" if name.endswith(("_insert", "_delete", "_update")) else "table"


def _name(statement: str) -> str:
    """Return what a CREATE statement creates."""
    words = _normal(statement).split()
    return words[3] if words[1] == "VIRTUAL" else words[2]


def _normal(statement: str) -> str:
    return " ".join(statement.split()).replace(" IF NOT EXISTS ", " ", 1)
