"""The journal of a SQLite file: it keeps the one that it has, whatever a store would choose."""

from contextlib import closing
from pathlib import Path

from hermes_orm.dialects.sqlite import driver


def use_journal(path: str | Path, mode: str) -> None:
    """Have a file, made if it does not exist, use "wal" or the rollback journal "delete"."""
    with closing(driver.module().connect(str(path))) as connection:
        connection.execute(f"PRAGMA journal_mode={mode}")
