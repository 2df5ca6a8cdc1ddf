"""What the host does with SQLite connections of its own, by the rules of the store."""

from __future__ import annotations

import asyncio
from contextlib import closing

import aiosqlite

from hermes_orm.config import load_settings
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite import journal
from hermes_orm.dialects.sqlite.thread import ConnectionThread
from hermes_orm.home import hermes_home


async def apply_wal_with_fallback(
    conn: aiosqlite.Connection, *, db_label: str = "state.db", require_wal: bool = False
) -> str:
    """Choose the journal mode of a connection as a store does; return the one that stands.

    That is the configured mode of the active home, unless the library or the file system forbids
    WAL: with `require_wal` WalUnsupportedError is raised then. A WAL file stays one.
    """
    configured = load_settings(hermes_home()).sqlite.journal_mode
    thread = ConnectionThread(conn)
    return await thread.call(
        lambda: journal.choose_journal(
            thread.driver, configured=configured, label=db_label, require_wal=require_wal
        )
    )


async def apply_database_pragmas(conn: aiosqlite.Connection, *, db_label: str = "state.db") -> None:
    """Set the pragmas that `config.yaml` of the active home asks for; `db_label` is for logs."""
    pragmas = load_settings(hermes_home()).sqlite.pragmas
    thread = ConnectionThread(conn)
    await thread.call(lambda: journal.apply_configured(thread.driver, pragmas))


async def sqlite_source_id() -> str:
    """Return the id of the linked library's build; empty when it can't be told."""
    return await asyncio.to_thread(_source_id)


def _source_id() -> str:
    module = sqlite_driver.module()
    try:
        with closing(module.connect(":memory:")) as driver:
            return str(driver.execute("SELECT sqlite_source_id()").fetchone()[0])
    except module.Error:
        return ""
