"""The foreign keys of the models, which loading a database drops and a repair restores."""

from __future__ import annotations

from functools import cache
from operator import itemgetter

from sqlalchemy import Connection, ForeignKeyConstraint
from sqlalchemy.schema import AddConstraint

from hermes_orm.models import Base


@cache
def references() -> dict[str, ForeignKeyConstraint]:
    """Return the foreign keys by `table.column`: those of a table after those that it refers to."""
    return {
        f"{table.name}.{name}": key
        for table in Base.metadata.sorted_tables
        for name, key in sorted(
            ((key.column_keys[0], key) for key in table.foreign_key_constraints),
            key=itemgetter(0),
        )
    }


def add_reference(connection: Connection, name: str, *, is_validated: bool) -> None:
    """Create a foreign key; one that is not validated holds for new rows only."""
    # Isolated, it would be left out of each table that is created from then on.
    adding = AddConstraint(references()[name], isolate_from_table=False)
    declared = str(adding.compile(dialect=connection.dialect))
    connection.exec_driver_sql(declared if is_validated else f"{declared} NOT VALID")
