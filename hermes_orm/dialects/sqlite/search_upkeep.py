"""The full-text objects of a file: which there are, in which form, and how they come to be right.

Everything here is derived from `messages`: whatever is dropped can be built again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from hermes_orm.dialects.indexing import CJK_REBUILD, REBUILD, clear_rebuild, defer_rebuild
from hermes_orm.dialects.sqlite.search_ddl import (
    CJK,
    SUBSTRINGS,
    WORDS,
    FtsIndex,
    create_index,
    is_unsupported,
)

logger = logging.getLogger("hermes_orm.sqlite")

INDEXES: Final = (WORDS, SUBSTRINGS)
STALE, CJK_STALE, SUBSTRINGS_STALE = "fts_stale", "fts_cjk_stale", "fts_trigram_stale"
LEGACY: Final = "fts_optimize_available"
LAYOUT: Final = "fts_storage_version"
NEWEST_LAYOUT: Final = "3"
MERGES_AT_ONCE: Final = 4
MERGED_PAGES: Final = 500
TRASH: Final = "fts_v22_trash_"
"""How the names of tables begin that are left of a former index, to be deleted bit by bit."""

Objects = dict[str, str]
"""Names of the full-text objects of a file, with their definitions."""


class Form(StrEnum):
    """In which form the tables of the indexes are."""

    NEWEST = "newest"
    LEGACY = "legacy"
    """One that other programs know, too: it is used as found."""
    UNKNOWN = "unknown"


def has_fts5(connection: Connection) -> bool:
    """Whether this SQLite has full-text search."""
    found = connection.exec_driver_sql("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'")
    return found.first() is not None


def objects(connection: Connection) -> Objects:
    """Return the full-text objects of the file, shadow tables and trash included."""
    rows = connection.exec_driver_sql(
        "SELECT name, sql FROM sqlite_master "
        f"WHERE name GLOB 'messages_fts*' OR name GLOB '{TRASH}*'"
    )
    return {row[0]: row[1] or "" for row in rows}


def present(found: Objects, *, cjk: bool = False) -> list[FtsIndex]:
    """Return the indexes whose tables exist."""
    return [index for index in (*INDEXES, *([CJK] if cjk else [])) if index.name in found]


def lacks_triggers(found: Objects) -> bool:
    """Whether a table is not kept, because triggers are missing."""
    return any(name not in found for index in present(found) for name in index.triggers)


def form(found: Objects) -> Form:
    """Return the form of the existing tables."""
    forms = {_form(found[index.name], index) for index in present(found)}
    worst = Form.UNKNOWN if Form.UNKNOWN in forms else Form.LEGACY
    return worst if forms - {Form.NEWEST} else Form.NEWEST


def _form(definition: str, index: FtsIndex) -> Form:
    arguments = [part.strip() for part in definition.partition("(")[2].rstrip(") \n").split(",")]
    columns = tuple(part.strip("\"'`[]") for part in arguments if "=" not in part)
    options = {part.replace(" ", "").replace('"', "'") for part in arguments if "=" in part}
    source = next((text[8:].strip("'") for text in options if text.startswith("content=")), None)
    if (columns, source) == (index.columns, index.view):
        return Form.NEWEST
    former = {(("content",), None), (WORDS.columns, "messages"), (WORDS.columns, index.view)}
    return Form.LEGACY if (columns, source) in former else Form.UNKNOWN


def is_empty(connection: Connection, found: Objects) -> bool:
    """Whether the word index holds nothing although there are messages."""
    if f"{WORDS.name}_docsize" not in found:
        return False
    row = connection.exec_driver_sql(
        f"SELECT NOT EXISTS (SELECT 1 FROM {WORDS.name}_docsize) "
        "AND EXISTS (SELECT 1 FROM messages)"
    ).one()
    return bool(row[0])


def is_own(found: Objects) -> bool:
    """Whether views are as this project defines them; others may show other texts."""
    return all(
        found.get(index.view, "").split() == index.view_ddl().split() for index in present(found)
    )


def lost_position(connection: Connection) -> bool:
    """Whether a rebuild in steps is under way that does not say how far it is."""
    high_water, progress = (is_marked(connection, key) for key in REBUILD)
    return high_water and not progress


def mark(connection: Connection, key: str, value: str = "1") -> None:
    """Set a key of `state_meta`."""
    connection.exec_driver_sql("REPLACE INTO state_meta (key, value) VALUES (?, ?)", (key, value))


def unmark(connection: Connection, *keys: str) -> None:
    """Remove keys of `state_meta`."""
    for key in keys:
        connection.exec_driver_sql("DELETE FROM state_meta WHERE key = ?", (key,))


def is_marked(connection: Connection, key: str) -> bool:
    """Whether a key of `state_meta` is set."""
    found = connection.exec_driver_sql("SELECT 1 FROM state_meta WHERE key = ?", (key,))
    return found.first() is not None


def drop_triggers(connection: Connection, indexes: Iterable[FtsIndex] = (*INDEXES, CJK)) -> None:
    """Drop the triggers that keep the indexes."""
    for index in indexes:
        for name in index.triggers:
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")


def kept(connection: Connection) -> list[FtsIndex]:
    """Return the word index and, unless a setting has retired it, the trigram index."""
    return [WORDS] if is_marked(connection, SUBSTRINGS_STALE) else list(INDEXES)


def defer_search(connection: Connection) -> None:
    """Replace the word and trigram index, of whatever layout, by empty ones to be filled in steps.

    What they held is put aside. Without FTS5 only the triggers go, which would fail every write.
    """
    drop_triggers(connection, INDEXES)
    if not has_fts5(connection):
        return
    put_search_aside(connection)
    create_search_objects(connection)
    defer_rebuild(connection)
    unmark(connection, STALE, LEGACY, LAYOUT)


def defer_cjk(connection: Connection) -> None:
    """Create the CJK index anew, empty, to be filled in steps."""
    drop_triggers(connection, [CJK])
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {CJK.name}")
    if create_index(connection, CJK):
        unmark(connection, CJK_STALE)
        defer_rebuild(connection, CJK_REBUILD)


def create_search_objects(connection: Connection) -> list[FtsIndex]:
    """Create the missing word and trigram index, empty; return those that this SQLite can have."""
    return [index for index in kept(connection) if create_index(connection, index)]


def restore_search(connection: Connection) -> int:
    """Build the indexes anew from the messages, whatever state they are in; return how many.

    Damage in the canonical tables raises.
    """
    drop_search(connection, INDEXES)
    created = create_search_objects(connection)
    for index in created:
        command(connection, index, "rebuild")
    clear_rebuild(connection, REBUILD)
    unmark(connection, STALE, LEGACY)
    return len(created)


def ensure_search(connection: Connection, *, has_cjk: bool = False) -> None:
    """Put right at opening what keeps the indexes from being kept or used; an index of a file.

    An index that is missing, stale or not kept is built anew, in this transaction. Triggers that
    would fail are dropped.
    """
    found = objects(connection)
    if has_cjk and CJK.name not in found:
        defer_cjk(connection)
    elif not has_cjk and CJK.triggers[0] in found:
        drop_triggers(connection, [CJK])
        mark(connection, CJK_STALE)
    if not has_fts5(connection):
        drop_triggers(connection)
    elif needs_rebuild(connection, found):
        restore_search(connection)
    elif form(found) is Form.LEGACY:
        mark(connection, LEGACY)


def needs_opening_work(connection: Connection, *, has_cjk: bool = False) -> bool:
    """Whether `ensure_search` would change anything; reads only."""
    found = objects(connection)
    if (CJK.name not in found) if has_cjk else (CJK.triggers[0] in found):
        return True
    if not has_fts5(connection):
        return any(name in found for index in (*INDEXES, CJK) for name in index.triggers)
    if needs_rebuild(connection, found):
        return True
    return form(found) is Form.LEGACY and not is_marked(connection, LEGACY)


def needs_rebuild(connection: Connection, found: Objects) -> bool:
    """Whether an index is missing, not kept, stale or of an unknown form."""
    is_kept = all(
        all(name in found for name in index.triggers)
        if index.name in found
        else not can_create(connection, index)
        for index in kept(connection)
    )
    return not is_kept or is_marked(connection, STALE) or form(found) is Form.UNKNOWN


def can_create(connection: Connection, index: FtsIndex) -> bool:
    """Whether this SQLite has what an index needs."""
    try:
        connection.exec_driver_sql(
            f"CREATE VIRTUAL TABLE temp.hermes_probe USING fts5(text{index.options})"
        )
    except OperationalError as error:
        if is_unsupported(error):
            return False
        raise
    connection.exec_driver_sql("DROP TABLE temp.hermes_probe")
    return True


def detach_search(connection: Connection) -> None:
    """Stop keeping the indexes, so that writes succeed; search scans until they are restored."""
    found = objects(connection)
    drop_triggers(connection)
    mark(connection, STALE)
    if CJK.triggers[0] in found:
        mark(connection, CJK_STALE)


def command(connection: Connection, index: FtsIndex, word: str) -> None:
    """Have FTS5 carry out a command."""
    connection.exec_driver_sql(f"INSERT INTO {index.name} ({index.name}) VALUES ('{word}')")


def merge(connection: Connection, index: FtsIndex, *, is_first: bool) -> None:
    """Merge some of the small parts that many transactions leave in an index."""
    driver: Any = connection.connection.driver_connection
    statement = f"INSERT INTO {index.name} ({index.name}, rank) VALUES (?, ?)"
    if is_first:
        driver.execute(statement, ("usermerge", 2))
    for _ in range(MERGES_AT_ONCE):
        before = driver.total_changes
        driver.execute(statement, ("merge", MERGED_PAGES))
        if driver.total_changes - before < 2:
            break


def discard(connection: Connection, rows: int) -> bool:
    """Delete up to `rows` rows of what was put aside; whether there is more."""
    for name in sorted(name for name in objects(connection) if name.startswith(TRASH)):
        if not name.endswith(("_idx", "_config")):  # those are small, and have no rowid
            some = f"SELECT rowid FROM {name} LIMIT {rows}"
            deleted = connection.exec_driver_sql(f"DELETE FROM {name} WHERE rowid IN ({some})")
            if deleted.rowcount == rows:
                return True
        connection.exec_driver_sql(f"DROP TABLE {name}")
        return any(other.startswith(TRASH) for other in objects(connection))
    return False


def drop_search(connection: Connection, indexes: Iterable[FtsIndex] = (*INDEXES, CJK)) -> None:
    """Drop indexes of whatever layout and however damaged, and what is left of former ones.

    It works without FTS5, too.
    """
    for index in indexes:
        drop_triggers(connection, [index])
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {index.view}")
        try:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {index.name}")
        except Exception as error:
            if not connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
                raise  # it was undone: the disk is full
            # FTS5 reports damage in many ways.
            logger.warning("%s is removed by force: %s", index.name, type(error).__name__)
            _forget(connection, index.name)
        for part in shadow_tables(index.name):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {part}")
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {TRASH}{part}")


def put_search_aside(connection: Connection, indexes: Iterable[FtsIndex] = INDEXES) -> None:
    """Turn what indexes hold into ordinary tables, to be deleted bit by bit.

    To drop a large index at once would hold up every writer.
    """
    found = objects(connection)
    for index in (index for index in indexes if index.name in found):
        drop_triggers(connection, [index])
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {index.view}")
        _put_aside(connection, index.name)


def _put_aside(connection: Connection, name: str) -> None:
    _forget(connection, name)
    found = objects(connection)
    for part in shadow_tables(name):
        if part in found:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {TRASH}{part}")
            connection.exec_driver_sql(f"ALTER TABLE {part} RENAME TO {TRASH}{part}")


def _forget(connection: Connection, name: str) -> None:
    """Remove an FTS5 table from the catalogue, without its shadow tables."""
    connection.exec_driver_sql("PRAGMA writable_schema = 1")
    try:
        connection.exec_driver_sql(f"DELETE FROM sqlite_master WHERE name = '{name}'")
        version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
        # Has every connection, this one too, read the catalogue again.
        connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    finally:
        connection.exec_driver_sql("PRAGMA writable_schema = 0")


def shadow_tables(name: str) -> list[str]:
    """Return the names of the tables in which FTS5 keeps an index."""
    return [f"{name}_{part}" for part in ("data", "idx", "content", "docsize", "config")]
