"""What is wrong with a database file, asked of a copy that nobody else uses."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from hermes_orm.dialects.sqlite import driver as sqlite_driver
from hermes_orm.dialects.sqlite.search_ddl import is_unsupported

PROBLEMS = 3
"""As many are told of an integrity check."""

_INDEX = re.compile(
    r"(?:row \d+ missing from|wrong # of entries in|non-unique entry in) index (\S+)"
)
_PROBE = (
    "INSERT INTO sessions (id, source, started_at) VALUES ('hermes-orm probe', 'probe', 0)",
    "INSERT INTO messages (session_id, role, content, timestamp) "
    "VALUES ('hermes-orm probe', 'user', 'probe', 0)",
)


def problem(path: Path) -> str | None:
    """Return why the database can't be used as it should be; None when all is well."""
    try:
        with closing(sqlite_driver.module().connect(str(path), isolation_level=None)) as driver:
            return _damage(driver) or _search_damage(driver) or _refusal(driver)
    except sqlite_driver.errors() as error:
        return str(error)


def _damage(driver: Any) -> str | None:
    rows = driver.execute("PRAGMA integrity_check(1000)").fetchall()
    texts = (_INDEX.sub(r"wrong # of entries in index \1", row[0]) for row in rows)
    found = [text for text in dict.fromkeys(texts) if text != "ok"]
    if not found:
        driver.execute("SELECT count(*) FROM sessions").fetchone()
    return "; ".join(islice(found, PROBLEMS)) or None


def search_tables(driver: Any) -> list[str]:
    """Return the names of the full-text tables."""
    rows = driver.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'messages_fts*' "
        "AND sql LIKE 'CREATE VIRTUAL TABLE%'"
    )
    return [row[0] for row in rows]


def _search_damage(driver: Any) -> str | None:
    for name in search_tables(driver):
        try:
            probe = f"SELECT rowid FROM {name} WHERE {name} MATCH '\"probe\"' LIMIT 1"
            driver.execute(probe).fetchall()
        except sqlite_driver.errors() as error:
            if not is_unsupported(error):
                return f"{name}: {error}"
    return None


def _refusal(driver: Any) -> str | None:
    driver.execute("BEGIN")
    try:
        for statement in _PROBE:
            driver.execute(statement)
    except sqlite_driver.errors() as error:
        return None if is_unsupported(error) else f"a row can't be stored: {error}"
    finally:
        driver.rollback()
    return None
