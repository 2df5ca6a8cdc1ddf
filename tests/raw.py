"""SQL on a test's database, for states that no public call can make."""

import asyncio
import re
from typing import Any

from sqlalchemy import Engine, NullPool, create_engine, make_url

from hermes_orm.dialects.postgresql.ddl import fill_recency
from hermes_orm.dialects.sqlite import driver as sqlite_driver

CHANGES_TRANSCRIPTS = re.compile(
    r"\b(INSERT|UPDATE|DELETE)\b.*\b(sessions|messages)\b", re.I | re.S
)


class Raw:
    """Runs one statement per call and commits it. Placeholders are `?` on both databases."""

    def __init__(self, location: str) -> None:
        self.is_postgres = location.startswith("postgresql")
        self.engine = postgres_engine(location) if self.is_postgres else sqlite_engine(location)

    async def execute(self, sql: str, *params: Any) -> int:
        """Run a statement; return the number of changed rows."""
        return await asyncio.to_thread(self._execute, sql, params)

    async def fetch(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """Run a query; return its rows."""
        return await asyncio.to_thread(self._fetch, sql, params)

    def _execute(self, sql: str, params: tuple[Any, ...]) -> int:
        with self.engine.begin() as connection:
            changed = connection.exec_driver_sql(self._spell(sql), params).rowcount
            if self.is_postgres and CHANGES_TRANSCRIPTS.search(sql):
                fill_recency(connection)
        return changed

    def _fetch(self, sql: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self.engine.begin() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(self._spell(sql), params)]

    def _spell(self, sql: str) -> str:
        """Return the statement with psycopg's placeholders; text in quotes stays."""
        if not self.is_postgres:
            return sql
        return re.sub(
            r"'[^']*'|\?",
            lambda match: "%s" if match[0] == "?" else match[0],
            sql.replace("%", "%%"),
        )


def postgres_engine(location: str) -> Engine:
    """Return a synchronous engine for a PostgreSQL location of either driver."""
    return create_engine(
        make_url(location).set(drivername="postgresql+psycopg"), poolclass=NullPool
    )


def sqlite_engine(location: str) -> Engine:
    """Return a synchronous engine for a SQLite file."""
    # Two SQLite libraries in one process would drop each other's file locks: use the store's.
    module = sqlite_driver.module()
    return create_engine(f"sqlite:///{location}", poolclass=NullPool, module=module)
