"""A file that may be damaged: what can still be read of its tables, by ranges of row ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hermes_orm.dialects.sqlite import driver as sqlite_driver

MESSAGES_INDEX: Final = "idx_messages_session_id"
PROBLEMS: Final = 20


def errors() -> tuple[type[Exception], ...]:
    """Return the classes of errors that damage may cause."""
    found: type[Exception] = sqlite_driver.module().Error
    return found, OverflowError


class DamagedFile:
    """A private copy of a file, opened so that as much as possible can be read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.is_wal = file.read(20)[18:20] == b"\x02\x02"
        self._driver: Any = sqlite_driver.module().connect(
            str(path), isolation_level=None, check_same_thread=False
        )
        self._driver.text_factory = self._decoded
        self.undecodable = 0
        """Texts that were no UTF-8: undecodable bytes were read as U+FFFD."""
        try:
            self._driver.execute("PRAGMA writable_schema=ON")  # a bad definition hides no other
            self._driver.execute("PRAGMA trusted_schema=OFF")
        except errors():
            self.close()
            raise

    def _decoded(self, stored: bytes) -> str:
        try:
            return stored.decode()
        except UnicodeDecodeError:
            self.undecodable += 1
            return stored.decode(errors="replace")

    def close(self) -> None:
        """Close the copy."""
        self._driver.close()

    def tables(self) -> set[str]:
        """Return the names of the tables; damaged definitions raise."""
        rows = self._driver.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {row[0] for row in rows.fetchall()}

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns."""
        rows = self._driver.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        return [row[0] for row in rows]

    def problems(self) -> list[str]:
        """Return what the integrity check finds."""
        try:
            rows = self._driver.execute(f"PRAGMA integrity_check({PROBLEMS})").fetchall()
        except errors() as error:
            return [str(error)]
        return [row[0] for row in rows if row[0] != "ok"]

    def count(self, table: str) -> int | None:
        """Return the number of a table's rows; None when that can't be read."""
        try:
            row = self._driver.execute(f'SELECT count(*) FROM "{table}" NOT INDEXED').fetchone()
        except errors():
            return None
        return int(row[0])

    def rows(
        self, table: str, names: Sequence[str], first: int, last: int, limit: int
    ) -> list[tuple[Any, ...]]:
        """Return row id and columns of the first rows in a range of row ids; damage raises."""
        listed = ", ".join(f'"{name}"' for name in names)
        found: list[tuple[Any, ...]] = self._driver.execute(
            f'SELECT rowid, {listed} FROM "{table}" NOT INDEXED '
            "WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?",
            (first, last, limit),
        ).fetchall()
        return found

    def edge(self, table: str, function: str) -> int | None:
        """Return the `min` or `max` row id, 0 of an empty table; None when it can't be read."""
        return self._number(f'SELECT {function}(rowid) FROM "{table}" NOT INDEXED')

    def last_message_id(self) -> int | None:
        """Return the greatest id of a message as the sequence or an index tells."""
        sequence = self._number("SELECT seq FROM sqlite_sequence WHERE name = 'messages'")
        return sequence or self._number(f"SELECT max(id) FROM messages INDEXED BY {MESSAGES_INDEX}")

    def has_row_from(self, table: str, first: int) -> bool | None:
        """Whether there is a row at or after a row id; None when that can't be read."""
        found = self._number(
            f'SELECT count(*) FROM (SELECT 1 FROM "{table}" NOT INDEXED '
            f"WHERE rowid >= {first:d} LIMIT 1)"
        )
        return None if found is None else found > 0

    def _number(self, query: str) -> int | None:
        try:
            row = self._driver.execute(query).fetchone()
        except errors():
            return None
        return 0 if row is None or row[0] is None else int(row[0])
