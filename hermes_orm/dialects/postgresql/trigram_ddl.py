"""Indexes by which parts of session ids and titles are found fast, where `pg_trgm` is to be had.

They cost no hit when they are missing, only speed: a search then reads every session.
"""

import logging

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

logger = logging.getLogger("hermes_orm.postgresql")

_COMPACT = "replace(replace(replace(replace(title, '-', ''), '_', ''), '.', ''), ' ', '')"
TRIGRAM_INDEXES = {
    "idx_hermes_sessions_id_trgm": "id",
    "idx_hermes_sessions_title_trgm": "title",
    "idx_hermes_sessions_compact_title_trgm": _COMPACT,
}
"""What they index of `sessions`, folded as `ascii_lower` folds it."""

_SCHEMA = (
    "SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = "
    "extnamespace WHERE extname = 'pg_trgm'"
)


def create_trigram_indexes(connection: Connection) -> bool:
    """Create the extension, where that is permitted, and the indexes; False: there is none.

    A store's own schema may be dropped at any time: the extension, which a database has once, goes
    to `public`.
    """
    schema = connection.exec_driver_sql(_SCHEMA).scalar() or _create_extension(connection)
    if schema is None:
        return False
    for name, text in TRIGRAM_INDEXES.items():
        connection.exec_driver_sql(
            f"CREATE INDEX IF NOT EXISTS {name} ON sessions "
            f'USING gin (lower(({text}) COLLATE "C") {schema}.gin_trgm_ops)'
        )
    return True


def _create_extension(connection: Connection) -> str | None:
    try:
        with connection.begin_nested():
            connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public")
    except DBAPIError as error:
        reason = str(error.orig).partition("\n")[0]
        logger.warning(
            "parts of session ids and titles are searched without an index, since the extension "
            "pg_trgm cannot be created (%s): have an administrator run CREATE EXTENSION pg_trgm, "
            "then hermes-orm db upgrade",
            reason,
        )
        return None
    schema: str = connection.exec_driver_sql(_SCHEMA).scalar_one()
    return schema
