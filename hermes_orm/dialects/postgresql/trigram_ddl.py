"""Indexes by which parts of session ids and titles are found fast, where `pg_trgm` is to be had.

They cost no hit when they are missing, only speed: a search then reads every session.
"""

import logging
from typing import Any

from sqlalchemy import Connection

logger = logging.getLogger("hermes_orm.postgresql")

_COMPACT = "replace(replace(replace(replace(title, '-', ''), '_', ''), '.', ''), ' ', '')"
TRIGRAM_INDEXES = {
    "idx_hermes_sessions_id_trgm": "id",
    "idx_hermes_sessions_title_trgm": "title",
    "idx_hermes_sessions_compact_title_trgm": _COMPACT,
}
"""What they index of `sessions`, folded as `ascii_lower` folds it."""

_PLACE = (
    "SELECT quote_ident(nspname) {into} FROM pg_extension JOIN pg_namespace "
    "ON pg_namespace.oid = extnamespace WHERE extname = 'pg_trgm'"
)
_INDEXES = "\n".join(
    f"EXECUTE $sql$CREATE INDEX IF NOT EXISTS {name} ON sessions "
    f'USING gin (lower(({text}) COLLATE "C") $sql$ || place || $sql$.gin_trgm_ops)$sql$;'
    for name, text in TRIGRAM_INDEXES.items()
)
# One block, which a script can hold, too. A store's own schema may be dropped at any time: the
# extension, which a database has once, goes to `public`.
_CREATE = f"""
    DO $body$
    DECLARE place text;
    BEGIN
        {_PLACE.format(into="INTO place")};
        IF place IS NULL THEN
            BEGIN
                CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public;
            EXCEPTION WHEN OTHERS THEN
                RAISE WARNING USING MESSAGE = 'no extension pg_trgm: ' || SQLERRM;
                RETURN;
            END;
            {_PLACE.format(into="INTO place")};
        END IF;
        {_INDEXES}
    END $body$
"""


def create_trigram_indexes(connection: Connection) -> None:
    """Create the extension, where that is permitted, and the indexes; else warn."""
    connection.exec_driver_sql(_CREATE)
    found: Any = connection.exec_driver_sql(_PLACE.format(into=""))
    if found is not None and found.first() is None:  # (a script returns nothing)
        logger.warning(
            "parts of session ids and titles are searched without an index, since the extension "
            "pg_trgm is missing and may not be created: have an administrator run "
            "CREATE EXTENSION pg_trgm, then hermes-orm db upgrade"
        )
