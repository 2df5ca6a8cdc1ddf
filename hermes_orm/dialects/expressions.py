"""The same expression in the spellings of both databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import SQLColumnExpression, Text, literal_column
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from hermes_orm.models.base import Base


def upsert(
    model: type[Base],
    values: Mapping[str, Any],
    *,
    update: Sequence[str] = (),
    where: Any = None,
) -> Insert:
    """Insert a row, or set the columns `update` of the row with the same primary key; none: keep that row.

    PostgreSQL's construct compiles for SQLite, too: the clause is spelt the same.
    """
    statement = insert(model).values(**values)
    key = [column.name for column in model.__table__.primary_key]
    if not update:
        return statement.on_conflict_do_nothing(index_elements=key)
    changed = {name: statement.excluded[name] for name in update}
    return statement.on_conflict_do_update(index_elements=key, set_=changed, where=where)


class ascii_lower(FunctionElement[str]):  # noqa: N801  (named like the SQL function it is)
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


class json_text_value(FunctionElement[str]):  # noqa: N801
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
    # Few rows hold the key; a letter of it may be written as an escape.
    return (
        f"CASE WHEN strpos({document}, {key}) > 0 OR strpos({document}, '\\u00') > 0 "
        f"THEN hermes_json_text({document}, {key}) END"
    )
