"""Databases that tests use one after another, each like a new copy of the template.

Creating a database and dropping it costs the server much more than emptying the tables that a test
has filled. Where a test changed anything but rows of tables, its database is dropped.
"""

import time
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from tests.postgres_server import PostgresServer

Connection = psycopg.Connection[Any]

USES = 100
"""Tests per database: each emptying leaves dead rows in the catalogs."""
LEAVE_WITHIN = 0.2
"""Seconds that connections which a test has closed may need to end on the server."""

AROUND = """
SELECT
    (SELECT count(*) FROM pg_stat_activity WHERE datname = base.datname),
    age(xmin) < age({since}::xid)
        OR EXISTS (SELECT FROM pg_db_role_setting WHERE setdatabase = base.oid)
        OR EXISTS (SELECT FROM pg_prepared_xacts WHERE database = base.datname)
FROM pg_database base WHERE datname = {name}
"""
"""How many are connected, and whether what is not in the database makes it different."""
WRITTEN = """
SELECT relname, in_catalog OR cared_for FROM (
    SELECT relname,
        relnamespace = 'pg_catalog'::regnamespace AS in_catalog,
        pg_stat_get_vacuum_count(oid) + pg_stat_get_analyze_count(oid) > 0 AS cared_for,
        pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid)
            + pg_stat_get_tuples_deleted(oid) > 0 AS written
    FROM pg_class WHERE relkind = 'r' AND NOT relisshared
) AS counted WHERE written OR cared_for
"""
"""Tables with written rows, also of transactions that were rolled back, and whether that matters.

A session counts before it ends, thus all that have ended are in. Whatever creates, alters or drops
something writes to a catalog.
"""
TABLES = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
"""
CONTENT = "SELECT json_agg(held)::text FROM {table} held"

EMPTY = "TRUNCATE {tables} CASCADE"
FILL = "INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, {content})"
INDEXES_AS_CREATED = """
UPDATE pg_class SET reltuples = 0,
    relpages = pg_relation_size(oid) / current_setting('block_size')::integer
WHERE oid >= 16384 AND relkind = 'i' AND reltuples = -1
"""
"""TRUNCATE lets the planner know less than CREATE INDEX on an empty table does."""
SEQUENCES = "SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence"
FORGET = ("SELECT pg_stat_force_next_flush()", "SELECT pg_stat_reset()")
"""Have this session count what it did, then count from zero."""


@dataclass
class Copy:
    """A database that belongs to one test at a time."""

    name: str
    since: str
    """A transaction that is older than those of the test."""
    uses: int = 1


class Copies:
    """The databases of this process."""

    def __init__(self, server: PostgresServer, template: str) -> None:
        self._server = server
        self._template = template
        self._idle: list[Copy] = []
        self._contents: dict[str, str] = {}
        """The rows of each table that has some in a new copy, as JSON."""
        self._admin = server.admin()
        # Only a superuser may write to catalogs, and the counters of older servers come late.
        is_superuser = self._admin.info.parameter_status("is_superuser") == "on"
        renews = is_superuser and self._admin.info.server_version >= 150000
        self._uses = USES if renews else 1

    def take(self) -> Copy:
        """Return a database that is like a new copy of the template."""
        if self._admin.closed:  # a test ended all sessions of the server
            self._admin = self._server.admin()
        return self._idle.pop() if self._idle else self._new()

    def give_back(self, copy: Copy) -> None:
        """Make a database like new, or drop it."""
        try:
            kept = copy.uses < self._uses and self._is_left(copy) and self._renew(copy)
        except psycopg.Error:
            kept = False
        if kept:
            self._idle.append(copy)
        else:
            self._server.drop(copy.name)

    def close(self) -> None:
        """Forget the databases; the server drops them at its end."""
        self._admin.close()

    def _new(self) -> Copy:
        name = self._server.new_name()
        self._server.create(name, self._template)
        if not self._contents:
            with self._server.admin(name) as connection:
                self._contents = contents(connection)
        return Copy(name, now(self._admin))

    def _is_left(self, copy: Copy) -> bool:
        """Whether nobody is connected any more, and nothing around the database has changed."""
        deadline = time.monotonic() + LEAVE_WITHIN
        query = sql.SQL(AROUND).format(name=copy.name, since=copy.since)
        while found := self._admin.execute(query).fetchone():
            connected, is_changed = found
            if is_changed or not connected:
                return not is_changed
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return False

    def _renew(self, copy: Copy) -> bool:
        """Make a database like new, under a name that nobody knows; return whether it is."""
        name = self._server.new_name()
        rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
        self._admin.execute(rename.format(sql.Identifier(copy.name), sql.Identifier(name)))
        copy.name = name
        with self._server.admin(name) as connection:
            is_renewed = renew(connection, self._contents)
        copy.since = now(self._admin)
        copy.uses += 1
        return is_renewed


def now(connection: Connection) -> str:
    """Return a transaction that is older than all to come."""
    return str(_value(connection, "SELECT pg_current_xact_id()::xid"))


def contents(connection: Connection) -> dict[str, str]:
    """Return the rows of each table that has some, as JSON."""
    tables = [name for (name,) in connection.execute(TABLES)]
    found = {table: _value(connection, CONTENT, table=sql.Identifier(table)) for table in tables}
    return {table: content for table, content in found.items() if content}


def renew(connection: Connection, contents: dict[str, str]) -> bool:
    """Give the tables the rows of a new copy; return False if more than rows has changed."""
    written = dict(connection.execute(WRITTEN).fetchall())
    if any(written.values()):
        return False
    with connection.transaction():
        if written:
            tables = sql.SQL(", ").join(map(sql.Identifier, written))
            connection.execute(sql.SQL(EMPTY).format(tables=tables))
            connection.execute(INDEXES_AS_CREATED)
        for table in contents.keys() & written:
            fill = sql.SQL(FILL).format(table=sql.Identifier(table), content=contents[table])
            connection.execute(fill)
        connection.execute(SEQUENCES)
    for query in FORGET:
        connection.execute(query)
    return True


def _value(connection: Connection, query: str, **parts: sql.Composable) -> Any:
    row = connection.execute(sql.SQL(query).format(**parts)).fetchone()
    return row and row[0]
