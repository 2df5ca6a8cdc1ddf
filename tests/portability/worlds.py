"""Databases to be copied, and what they hold."""

import random
from contextlib import closing
from typing import Any

from sqlalchemy import LargeBinary, Numeric, Table, insert

from hermes_orm import SessionDB
from hermes_orm.codec import decode_content
from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.models.own import ON_DEMAND_TABLES
from hermes_orm.portability.tables import KEYS_LEFT, carried_tables
from hermes_orm.portability.values import CONTENT_COLUMNS
from tests.raw import sqlite_engine

TEXTS: tuple[str, ...] = (
    "",
    "plain",
    "蓄水池 ñ é 🚰",
    "\x00json:[1, 2]",
    "\x01json:[1, 2]",
    "\x00json:not json",
    "\x01json:",
    '\x01json:"a\\u0000b"',
    "a\x00b",
    "\x00",
    "\ufffd",
    '{"a": "\\u0000"}',
    '{"a": "\\ud800"}',
    "back\\slash\ttab\nline\r",
    "\\N",
)
"""Values of text columns that a database, or COPY, might take for something else."""

OF_THE_FILE = {("state_meta", key) for key in KEYS_LEFT}


def value(rng: random.Random, table: Table, column: Any) -> Any:
    """Return a value that SQLite can hold."""
    if column.nullable and rng.random() < 0.3:
        return None
    if isinstance(column.type, LargeBinary):
        return rng.randbytes(32)
    if isinstance(column.type, Numeric) or column.type.python_type is float:
        return rng.choice([0.0, 1.5, 1767225600.25, -3.0, 1e300])
    if column.type.python_type is int:
        return rng.choice([0, 1, 2, 2**31 - 1])
    texts = TEXTS
    if (table.name, column.name) not in CONTENT_COLUMNS:
        texts = tuple(text for text in TEXTS if "\x00" not in text)
    return rng.choice(texts) + (str(rng.random()) if rng.random() < 0.2 else "")


def fill(path: str, seed: int, rows: int = 20) -> None:
    """Put random rows into every table of a SQLite store, also rows that refer to nothing."""
    rng = random.Random(seed)
    engine = sqlite_engine(path)
    with engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        for table in carried_tables():
            if table.name in ON_DEMAND_TABLES:
                table.create(connection, checkfirst=True)
            if table.name == "state_meta":
                continue
            for number in range(rng.randrange(rows)):
                row = {each.name: value(rng, table, each) for each in table.columns}
                for each in table.primary_key.columns:
                    is_number = each.type.python_type is int
                    row[each.name] = 7 * number + 1 if is_number else f"{row[each.name]}{number}"
                row |= {"session_id": f"s{number}"} if "session_id" in table.columns else {}
                row |= {"id": f"s{number}"} if table.name == "sessions" else {}
                row |= {"title": f"t{number}"} if table.name == "sessions" else {}
                connection.execute(insert(table), row)


def _as_value(table: str, name: str, cell: Any) -> Any:
    """Contents are equal when they stand for the same value."""
    is_content = (table, name) in CONTENT_COLUMNS and isinstance(cell, str)
    return decode_content(cell) if is_content else cell


def stored(path: str) -> dict[str, list[Any]]:
    """Return the rows of all carried tables of a SQLite file."""
    found = {}
    with closing(sqlite_driver.module().connect(path)) as connection:
        for table in carried_tables():
            names = [each.name for each in table.columns]
            listed = ", ".join(f'"{name}"' for name in names)
            rows = connection.execute(f"SELECT {listed} FROM {table.name}").fetchall()
            shown = [
                [_as_value(table.name, name, cell) for name, cell in zip(names, row, strict=True)]
                for row in rows
                if (table.name, row[0]) not in OF_THE_FILE
            ]
            found[table.name] = sorted(map(repr, shown))
        found["sqlite_sequence"] = connection.execute("SELECT * FROM sqlite_sequence").fetchall()
    return found


async def first_use(location: str) -> None:
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")
        await db.append_message("s", "user", "Is the cistern full? 蓄水池")
