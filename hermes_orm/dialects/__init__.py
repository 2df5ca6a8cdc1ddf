"""The only place that knows SQLite from PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from hermes_orm.config import Settings
from hermes_orm.dialects.base import Dialect, Scope, Transaction, Work
from hermes_orm.dialects.prepared import Prepared
from hermes_orm.dialects.transport import HeldTransaction, Transport
from hermes_orm.home import hermes_home
from hermes_orm.location import Location, SqliteLocation


def make_dialect(location: Location) -> Dialect:
    """Return the parts of the location's database; imports no driver of the other one."""
    if isinstance(location, SqliteLocation):
        from hermes_orm.dialects.sqlite.dialect import SQLiteDialect

        return SQLiteDialect()
    from hermes_orm.dialects.postgresql.dialect import PostgreSQLDialect

    return PostgreSQLDialect()


def make_transport(
    location: Location,
    settings: Settings,
    dialect: Dialect,
    *,
    read_only: bool,
    home: Path | None = None,
) -> Transport:
    """Return the transport for a location; nothing is connected yet."""
    if isinstance(location, SqliteLocation):
        from hermes_orm.dialects.sqlite import cjk
        from hermes_orm.dialects.sqlite.engine import SQLiteTransport

        wants_cjk = settings.sessions.cjk_fts and not read_only
        return SQLiteTransport(
            str(location),
            settings.sqlite,
            dialect,
            read_only=read_only,
            home=home or hermes_home(),
            cjk_tokenizer=cjk.find() if wants_cjk else None,
            has_trigrams=settings.sessions.trigram_fts,
        )
    from hermes_orm.dialects.postgresql.engine import PostgreSQLTransport
    from hermes_orm.dialects.postgresql.options import engine_options

    options = engine_options(location, settings.postgres, read_only=read_only)
    return PostgreSQLTransport(options, dialect, read_only=read_only)


__all__ = [
    "Dialect",
    "HeldTransaction",
    "Prepared",
    "Scope",
    "Transaction",
    "Transport",
    "Work",
    "make_dialect",
    "make_transport",
]
