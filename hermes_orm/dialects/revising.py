"""Changes that revisions make: each looks first, and makes only what is missing.

A script (`--sql`) cannot look: it gets the statements of a run from an empty database.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy.schema import CreateColumn

from hermes_orm.dialects.adoption import HASTY
from hermes_orm.dialects.migrating import connection_of, frozen_ddl

logger = logging.getLogger("hermes_orm.migrations")

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer()
BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DOUBLE: Any = sa.Double().with_variant(sa.REAL(), "sqlite")
BYTES = sa.LargeBinary()

BATCH = 100
"""Rows that a data step holds in memory at a time."""


@dataclass(frozen=True)
class Column:
    """A column as a revision declares it; `references` is `table.column`."""

    name: str
    type: Any
    nullable: bool = True
    default: str | None = None
    references: str | None = None
    on_delete: str | None = None

    def build(self, *extra: Any) -> sa.Column[Any]:
        """Return a column that belongs to no table yet."""
        default = None if self.default is None else sa.text(self.default)
        return sa.Column(
            self.name, self.type, *extra, nullable=self.nullable, server_default=default
        )

    def foreign_key(self, table: str) -> list[sa.ForeignKeyConstraint]:
        """Return the constraint of this column of `table`, if it has one."""
        if self.references is None:
            return []
        name = f"fk_{table}_{self.name}"
        return [
            sa.ForeignKeyConstraint(
                [self.name], [self.references], name=name, ondelete=self.on_delete
            )
        ]


def optional(name: str, type_: Any, default: str | None = None, **more: Any) -> Column:
    """Declare a column that may be NULL."""
    return Column(name, type_, True, default, **more)


def required(name: str, type_: Any, default: str | None = None, **more: Any) -> Column:
    """Declare a column that is NOT NULL."""
    return Column(name, type_, False, default, **more)


class Schema:
    """Guarded changes to the schema that `context` works on, and the data steps' tools."""

    def __init__(self, context: MigrationContext) -> None:
        self.context = context
        self.frozen = frozen_ddl(context)
        self.connection: Any = connection_of(context)
        self.offline = context.as_sql
        self._op = Operations(context)

    @classmethod
    def of(cls, op: Any) -> Schema:
        """Return the schema of the running revision; full-text triggers rest from now on."""
        schema = cls(op.get_context())
        options = schema.context.opts
        if "search_found" not in options:
            options["search_found"] = schema.frozen.pause_search(schema.connection)
        return schema

    def option(self, name: str) -> Any:
        """Return what `-x name=…` says, or the attribute of that name of the configuration."""
        environment = self.context.environment_context
        if environment is None:
            return None
        given = environment.get_x_argument(as_dictionary=True)
        return given.get(name, environment.config.attributes.get(name))

    @property
    def is_hasty(self) -> bool:
        """Whether the store itself completes later what messages can do without for a while."""
        return not self.offline and HASTY in self.connection.info

    @property
    def _may_commit(self) -> bool:
        """Whether the transaction is Alembic's: a replay runs in its caller's."""
        return not self.offline and self.context.environment_context is not None

    # Tables and columns

    def has_table(self, table: str) -> bool:
        """Whether the table is known to exist."""
        return not self.offline and bool(self.frozen.columns(self.connection, table))

    def columns(self, table: str) -> Mapping[str, bool]:
        """Return the columns of a table, each with whether it may be NULL."""
        columns: Mapping[str, bool] = (
            {} if self.offline else self.frozen.columns(self.connection, table)
        )
        return columns

    def primary_key(self, table: str) -> tuple[str, ...]:
        """Return the key columns of a table, in order."""
        return () if self.offline else tuple(self.frozen.primary_key(self.connection, table))

    def create_table(
        self, table: str, columns: Iterable[Column], *, key: Iterable[str] = (), **options: Any
    ) -> bool:
        """Create a table, or add what an existing one lacks; tell whether it was created.

        A single whole-number key numbers its rows.
        """
        columns, key = list(columns), tuple(key)
        if self.has_table(table):
            self.add_columns(table, *(c for c in columns if c.nullable or c.default is not None))
            return False
        items: list[Any] = []
        for column in columns:
            if key == (column.name,):
                column = replace(column, nullable=self.frozen.SINGLE_KEY_NULLABLE)
                items.append(column.build(*([sa.Identity()] if column.type is BIGINT else [])))
            else:
                items.append(column.build())
        for column in columns:
            items.extend(column.foreign_key(table))
        if key:
            items.append(sa.PrimaryKeyConstraint(*key, name=f"{table}_pkey"))
        self._op.create_table(table, *items, **options)
        return True

    def drop_table(self, table: str, *, disposable: bool = False) -> None:
        """Drop a table with its indexes; one with rows only when the caller confirms the loss."""
        if not disposable and self.has_table(table):
            self.confirm_loss(table, sa.true(), f"the rows of {table}")
        self.run(f"DROP TABLE IF EXISTS {table}")

    def add_columns(self, table: str, *columns: Column) -> None:
        """Add the columns that a table lacks."""
        present = self.columns(table)
        for column in columns:
            if column.name in present:
                continue
            built = column.build()
            sa.Table(table, sa.MetaData(), built)
            declared = str(CreateColumn(built).compile(dialect=self.context.dialect))
            if column.references is not None:
                target, name = column.references.split(".")
                declared += f" CONSTRAINT fk_{table}_{column.name} REFERENCES {target} ({name})"
            self.run(f"ALTER TABLE {table} ADD COLUMN {declared}")

    def drop_columns(self, table: str, *columns: Column, derived: bool = False) -> None:
        """Drop columns; those that hold anything only when the caller confirms the loss."""
        present = self.columns(table)
        if not self.offline:
            columns = tuple(column for column in columns if column.name in present)
        if not columns:
            return
        if not derived:
            for column in columns:
                stored: sa.ColumnElement[Any] = sa.column(column.name)
                kept = (
                    stored.is_not(None)
                    if column.default is None
                    else stored != sa.literal_column(column.default)
                )
                self.confirm_loss(table, kept, f"{table}.{column.name}")
        self.frozen.drop_columns(self.connection, table, [column.name for column in columns])

    def require_value(self, table: str, column: Column) -> None:
        """Make a column NOT NULL with its default where a file has it otherwise."""
        if self.columns(table).get(column.name):
            type_ = column.type.compile(self.context.dialect)
            self.frozen.require_value(self.connection, table, column.name, type_, column.default)

    def require_reference(self, table: str, column: Column) -> None:
        """Add the foreign key of a column where a database lacks it."""
        assert column.references is not None
        if self.offline or self.frozen.has_foreign_key(self.connection, table, column.name):
            return
        target, _, name = column.references.partition(".")
        self.frozen.add_foreign_key(self.connection, table, column.name, (target, name))

    def replace_table(
        self, table: str, rows: Mapping[str, str], source: str, create: Callable[[], Any]
    ) -> None:
        """Make a table anew; `rows` says for each column what to select from `source`."""
        triggers = [] if self.offline else self.frozen.triggers_of(self.connection, table)
        names = ", ".join(rows)
        selected = ", ".join(f"{expression} AS {name}" for name, expression in rows.items())
        self.run(f"CREATE TEMPORARY TABLE hermes_kept AS SELECT {selected} FROM {source}")
        self.run(f"DROP TABLE {table}")
        create()
        self.run(f"INSERT INTO {table} ({names}) SELECT {names} FROM hermes_kept")
        self.run("DROP TABLE hermes_kept")
        for statement in triggers:
            self.connection.exec_driver_sql(statement)

    # Indexes

    def create_index(
        self,
        name: str,
        table: str,
        columns: Iterable[str],
        *,
        unique: bool = False,
        where: str | None = None,
    ) -> None:
        """Create an index unless there is one of that name; a column may end in ` DESC`.

        Where writers would wait long for it, what was done so far is committed, and the index is
        built while they go on.
        """
        if not self.offline and self.frozen.has_index(self.connection, name):
            return
        if self.is_hasty and table == "messages" and not unique:
            return
        condition = None if where is None else sa.text(where)
        create = partial(
            self._op.create_index,
            name,
            table,
            [sa.text(c) if not c.isidentifier() else c for c in columns],
            unique=unique,
            sqlite_where=condition,
            postgresql_where=condition,
        )
        if not self.offline:
            self.drop_indexes(name)  # what a build that failed has left: invalid, and in the way
        if self._may_commit and self.frozen.is_big(self.connection, table):
            with self.context.autocommit_block(), self.frozen.patient(self.connection):
                create(postgresql_concurrently=True)
        else:
            create()

    def drop_indexes(self, *names: str) -> None:
        """Drop those of the indexes that exist."""
        for name in names:
            self.run(f"DROP INDEX IF EXISTS {name}")

    # Data

    def run(self, statement: str, **values: Any) -> Any:
        """Run a statement, or write it to the script."""
        if self.offline:
            return self.connection.exec_driver_sql(statement)
        return self.connection.execute(sa.text(statement), values)

    def run_many(self, statement: str, rows: list[dict[str, Any]]) -> None:
        """Run a statement once for each of the rows."""
        if rows:
            self.connection.execute(sa.text(statement), rows)

    def rows(self, query: str, **values: Any) -> list[Any]:
        """Return the rows that a query finds."""
        return list(self.connection.execute(sa.text(query), values))

    def batches(self, query: str, *, size: int = BATCH, **values: Any) -> Iterator[list[Any]]:
        """Return the rows of a query in steps; it takes `:after`, orders by its first column."""
        after: Any = values.pop("after", "")
        while found := self.rows(f"{query} LIMIT {size}", after=after, **values):
            yield found
            after = found[-1][0]

    def omit(self, what: str) -> None:
        """Say in the script what only a run on a database can do."""
        self.context.impl.static_output(f"-- Not in this script: {what}")

    def note(self, text: str, *values: object) -> None:
        """Tell whoever runs the migration what a step has changed."""
        logger.warning(text, *values)

    def fill_recency(self) -> None:
        """Compute the recency of every session anew."""
        if not self.offline:
            self.frozen.fill_recency(self.connection)

    def confirm_loss(self, table: str, lost: str | sa.ColumnElement[bool], what: str) -> None:
        """Refuse to go on when rows would lose something and the caller has not agreed to it."""
        if self.offline or str(self.option("force")).lower() in ("true", "1", "yes"):
            return
        condition = sa.text(lost) if isinstance(lost, str) else lost
        query = sa.select(sa.literal(1)).select_from(sa.table(table)).where(condition).limit(1)
        if self.connection.scalar(query) is not None:
            raise CommandError(
                f"this downgrade would lose {what}: nothing was changed; "
                "export it first, or confirm the loss with -x force=true"
            )
