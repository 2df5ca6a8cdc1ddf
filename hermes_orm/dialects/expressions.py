"""The same expression in the spellings of both databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Text
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


