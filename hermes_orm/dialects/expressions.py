"""The same expression in the spellings of both databases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Double,
    Select,
    SQLColumnExpression,
    Table,
    Text,
    bindparam,
    cast,
    column,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.operators import OperatorType

from hermes_orm.models import Message
from hermes_orm.models.base import Base


def insert_into(model: type[Base] | Table, values: Mapping[str, Any]) -> Insert:
    """Return an INSERT that can go on with `on_conflict_do_...`; `excluded` is its row.

    PostgreSQL's construct compiles for SQLite, too: the clause is spelt the same.
    """
    return insert(model).values(**values)


def insert_from(model: type[Base], columns: Sequence[str], rows: Select[Any]) -> Insert:
    """Return an INSERT of the rows of a query, which has a WHERE, that can go on likewise."""
    return insert(model).from_select(list(columns), rows)


def upsert(
    model: type[Base],
    values: Mapping[str, Any],
    *,
    update: Sequence[str] = (),
    where: Any = None,
) -> Insert:
    """Insert a row, or set the columns `update` of the row with the same primary key.

    Without `update` that row is kept.
    """
    statement = insert_into(model, values)
    key = [column.name for column in model.__table__.primary_key]
    if not update:
        return statement.on_conflict_do_nothing(index_elements=key)
    changed = {name: statement.excluded[name] for name in update}
    return statement.on_conflict_do_update(index_elements=key, set_=changed, where=where)


class ascii_lower(FunctionElement[str]):
    """`ascii_lower(text)`: A to Z folded, every other character kept."""

    name = "ascii_lower"
    type = Text()
    inherit_cache = True


@compiles(ascii_lower, "sqlite")
def _(element: ascii_lower, compiler: SQLCompiler, **kw: Any) -> str:
    return f"lower({compiler.process(element.clauses, **kw)})"


@compiles(ascii_lower, "postgresql")
def _(element: ascii_lower, compiler: SQLCompiler, **kw: Any) -> str:
    return f'lower(({compiler.process(element.clauses, **kw)}) COLLATE "C")'


class json_text_value(FunctionElement[str]):
    """`json_text_value(column, key)`: the value of a top-level key of JSON text, as text.

    NULL when the key is absent or null, or when the document is no JSON object; never an error.
    """

    name = "json_text_value"
    type = Text()
    inherit_cache = True

    def __init__(self, document: SQLColumnExpression[Any], key: str) -> None:
        super().__init__(document, literal_column(f"'{key}'"))


@compiles(json_text_value, "sqlite")
def _(element: json_text_value, compiler: SQLCompiler, **kw: Any) -> str:
    document, key = (compiler.process(part, **kw) for part in element.clauses)
    return f"CASE WHEN json_valid({document}) THEN json_extract({document}, '$.' || {key}) END"


@compiles(json_text_value, "postgresql")
def _(element: json_text_value, compiler: SQLCompiler, **kw: Any) -> str:
    document, key = (compiler.process(part, **kw) for part in element.clauses)
    # Few documents hold the key, and the function is dear.
    return f"CASE WHEN strpos({document}, {key}) > 0 THEN hermes_json_text({document}, {key}) END"


class leading_text(FunctionElement[str]):
    """`leading_text(text, length)`: at least the first `length` characters, U+0000 among them."""

    name = "leading_text"
    type = Text()
    inherit_cache = True


@compiles(leading_text, "sqlite")
def _(element: leading_text, compiler: SQLCompiler, **kw: Any) -> str:
    text, length = (compiler.process(part, **kw) for part in element.clauses)
    leading = f"substr({text}, 1, {length})"
    # It ends at a NUL, which is looked for in short texts only.
    is_cut = f"length({leading}) < {length} AND instr({text}, char(0))"
    return f"CASE WHEN {is_cut} THEN {text} ELSE {leading} END"


@compiles(leading_text, "postgresql")
def _(element: leading_text, compiler: SQLCompiler, **kw: Any) -> str:
    text, length = (compiler.process(part, **kw) for part in element.clauses)
    return f"left({text}, {length})"


class _key(FunctionElement[Any]):
    """A key that a row is looked up by."""

    name = "key"
    inherit_cache = True


@compiles(_key, "sqlite")
def _(element: _key, compiler: SQLCompiler, **kw: Any) -> str:
    return compiler.process(element.clauses, **kw)


@compiles(_key, "postgresql")
def _(element: _key, compiler: SQLCompiler, **kw: Any) -> str:
    return f"ANY (ARRAY[{compiler.process(element.clauses, **kw)}])"


def has_key(column: SQLColumnExpression[Any], key: SQLColumnExpression[Any]) -> ColumnElement[bool]:
    """Return an equality for joins that look a few rows up by an indexed column.

    PostgreSQL guesses how many keys a walk or a parameter brings; by a plain equality it would
    rather read the whole table and hash it.
    """
    return column == _key(key)


class _condition(FunctionElement[bool]):
    """A condition as it stands: with SQLAlchemy's `= 1` behind it, SQLite uses no index for it."""

    type = Boolean()
    inherit_cache = True

    def self_group(self, against: OperatorType | None = None) -> Any:
        """Return the condition itself, wherever it stands."""
        return self


class _is_key_of(_condition):
    """Whether a column is among the keys that a query yields."""

    name = "is_key_of"
    inherit_cache = True


@compiles(_is_key_of, "sqlite")
def _(element: _is_key_of, compiler: SQLCompiler, **kw: Any) -> str:
    column, keys = (compiler.process(part, **kw) for part in element.clauses)
    return f"{column} IN {keys}"


@compiles(_is_key_of, "postgresql")
def _(element: _is_key_of, compiler: SQLCompiler, **kw: Any) -> str:
    column, keys = (compiler.process(part, **kw) for part in element.clauses)
    return f"{column} = ANY (ARRAY{keys})"


def has_key_of(column: SQLColumnExpression[Any], keys: Select[Any]) -> ColumnElement[bool]:
    """Return a condition that looks the rows up whose indexed column a query yields.

    Where a query may yield many keys PostgreSQL would rather read the whole table and hash it.
    """
    return _is_key_of(column, keys.scalar_subquery())


class _beyond(_condition):
    """Whether a row of a group comes after, or before, a row id in it."""

    name = "beyond"
    inherit_cache = True

    def __init__(self, *parts: SQLColumnExpression[Any], before: bool) -> None:
        super().__init__(*parts, literal_column("'<'" if before else "'>'"))


@compiles(_beyond, "sqlite")
def _(element: _beyond, compiler: SQLCompiler, **kw: Any) -> str:
    column, row_id, group, start, sign = (compiler.process(e, **kw) for e in element.clauses)
    return f"({column} = {group} AND {row_id} {sign[1]} {start})"


@compiles(_beyond, "postgresql")
def _(element: _beyond, compiler: SQLCompiler, **kw: Any) -> str:
    column, row_id, group, start, sign = (compiler.process(e, **kw) for e in element.clauses)
    opposite = {"<": ">=", ">": "<="}[sign[1]]
    return f"(({column}, {row_id}) {sign[1]} ({group}, {start}) AND {column} {opposite} {group})"


def is_beyond(
    message: type[Message],
    session_id: SQLColumnExpression[Any],
    row_id: SQLColumnExpression[Any],
    *,
    before: bool = False,
) -> ColumnElement[bool]:
    """Whether a message comes after, or before, a row id in a session; for pages of few rows.

    They are ordered by session and id. Given an equality and a limit, PostgreSQL would rather walk
    along the ids of all messages until it has met enough of the session, which may be all old.
    """
    return _beyond(message.session_id, message.id, session_id, row_id, before=before)


class unindexed(FunctionElement[Any]):
    """`unindexed(column)`: the column, where an index on it would lose an order that is worth more.

    PostgreSQL knows how rare a value is and needs no advice.
    """

    name = "unindexed"
    inherit_cache = True

    def __init__(self, expression: SQLColumnExpression[Any]) -> None:
        super().__init__(expression)
        self.type = next(iter(self.clauses)).type


@compiles(unindexed, "sqlite")
def _(element: unindexed, compiler: SQLCompiler, **kw: Any) -> str:
    return f"+{compiler.process(element.clauses, **kw)}"


@compiles(unindexed, "postgresql")
def _(element: unindexed, compiler: SQLCompiler, **kw: Any) -> str:
    return compiler.process(element.clauses, **kw)


class _json_texts(FunctionElement[str]):
    """The texts of a JSON array, as a table with the column `value`."""

    name = "json_texts"
    type = Text()
    inherit_cache = True


@compiles(_json_texts, "sqlite")
def _(element: _json_texts, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **kw)})"


@compiles(_json_texts, "postgresql")
def _(element: _json_texts, compiler: SQLCompiler, **kw: Any) -> str:
    array = compiler.process(element.clauses, **kw)
    texts = f"SELECT json_array_elements_text(CAST({array} AS json))"
    return f"(SELECT unnest(ARRAY({texts})) AS value)"  # expects 10 texts; the function alone, 100


def bound_texts(name: str) -> Select[str]:
    """Select the texts of one parameter, for `in_()`; its value is made by `text_list`."""
    texts: Any = _json_texts(bindparam(name, type_=Text()))
    return select(texts.table_valued(column("value", Text())).c.value)


def text_list(texts: Iterable[str]) -> str:
    """Return the value for `bound_texts`; the texts are free of U+0000 and lone surrogates."""
    return json.dumps(list(texts))


def bound_ids(name: str) -> Select[int]:
    """Select the row ids of one parameter, for `in_()`; its value is made by `id_list`."""
    (text,) = bound_texts(name).selected_columns
    return select(cast(text, Message.id.type))


def id_list(ids: Iterable[int]) -> str:
    """Return the value for `bound_ids`."""
    return json.dumps(list(ids))


class utc_day(FunctionElement[str]):
    """`utc_day(seconds)`: the date of a Unix time of the years 1970 to 9999, as YYYY-MM-DD."""

    name = "utc_day"
    type = Text()
    inherit_cache = True


@compiles(utc_day, "sqlite")
def _(element: utc_day, compiler: SQLCompiler, **kw: Any) -> str:
    return f"date({compiler.process(element.clauses, **kw)}, 'unixepoch')"


@compiles(utc_day, "postgresql")
def _(element: utc_day, compiler: SQLCompiler, **kw: Any) -> str:
    moment = f"to_timestamp({compiler.process(element.clauses, **kw)}) AT TIME ZONE 'UTC'"
    return f"to_char({moment}, 'YYYY-MM-DD')"


class epoch_now(FunctionElement[float]):
    """`epoch_now("now")`: the time, for leases: hosts that share a server agree on the server's.

    On SQLite, where every writer is on one host, it is the parameter of that name.
    """

    name = "epoch_now"
    type = Double()
    inherit_cache = True

    def __init__(self, parameter: str) -> None:
        super().__init__(bindparam(parameter, type_=Double()))


@compiles(epoch_now, "sqlite")
def _(element: epoch_now, compiler: SQLCompiler, **kw: Any) -> str:
    return compiler.process(element.clauses, **kw)


@compiles(epoch_now, "postgresql")
def _(element: epoch_now, compiler: SQLCompiler, **kw: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


class new_uid(FunctionElement[str]):
    """`new_uid()`: 32 random hex digits, others for each row."""

    name = "new_uid"
    type = Text()
    inherit_cache = True


@compiles(new_uid, "sqlite")
def _(element: new_uid, compiler: SQLCompiler, **kw: Any) -> str:
    return "lower(hex(randomblob(16)))"


@compiles(new_uid, "postgresql")
def _(element: new_uid, compiler: SQLCompiler, **kw: Any) -> str:
    return "replace(CAST(gen_random_uuid() AS text), '-', '')"
