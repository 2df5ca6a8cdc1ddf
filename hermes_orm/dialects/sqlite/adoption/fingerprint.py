"""What a SQLite file says about its schema, and what it really holds. Only reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from hermes_orm.errors import SchemaError
from hermes_orm.models import Base
from hermes_orm.models.meta import HEAD_REVISION, SCHEMA_VERSION
from hermes_orm.models.own import ON_DEMAND_TABLES, OWN_TABLES

STAMP_TABLE = "hermes_alembic_version"

FINGERPRINT = {
    "sessions": {
        *("id", "source", "user_id", "model", "model_config", "system_prompt"),
        *("parent_session_id", "started_at", "ended_at", "end_reason", "message_count"),
        *("tool_call_count", "input_tokens", "output_tokens"),
    },
    "messages": {
        *("id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name"),
        *("timestamp", "token_count"),
    },
    "schema_version": {"version"},
}
"""Tables and columns that every Hermes file has since version 1."""

KEYS = {"sessions": ("id", "TEXT"), "messages": ("id", "INTEGER")}
"""Key and type of key that tell these tables from others of the same name."""

DISCRIMINATORS = {
    2: "messages.finish_reason",
    3: "sessions.title",
    4: "idx_sessions_title_unique",
    5: "sessions.billing_provider",
    6: "messages.reasoning",
    7: "messages.reasoning_content",
    8: "sessions.api_call_count",
    9: "messages.codex_message_items",
    12: "messages.platform_message_id",
    13: "messages.observed",
    14: "compression_locks",
    15: "idx_sessions_source_id",
    17: "sessions.session_key",
    18: "sessions.display_name",
    20: "session_model_usage",
    22: "key session_model_usage.task",
    24: "sessions.last_activity_at",
    25: "system_prompts",
    26: "sessions.git_metadata_generation",
    27: "sessions.compression_recovery_deadline",
    28: "sessions.tool_names",
    31: "messages.message_uid",
}
"""What a file of a version has, and none before it; versions that add only data have nothing."""

FILLED = (20, 25, 31)
"""Versions that fill what they create: where that is missing, their data step has never run."""

Kind = Literal["empty", "head", "unstamped head", "old"]


@dataclass(frozen=True)
class Findings:
    """The schema of a file: its own claims, and its shape."""

    kind: Kind
    """`unstamped head`: a complete file of the newest version that another program made."""
    stamp: str | None = None
    """Revision in our own version table."""
    version: int | None = None
    """Number in `schema_version`; None unless it is exactly one known number."""
    shape: int = 0
    """Highest version such that everything up to it is present."""
    holes: tuple[str, ...] = ()
    """What the number promises and the file lacks."""

    @property
    def start(self) -> int:
        """The version to upgrade from: a number that lags is kept, a missing one is guessed."""
        if self.version is None:
            return self.shape
        unfilled = [k - 1 for k in FILLED if DISCRIMINATORS[k] in self.holes]
        return min([self.version, *unfilled])

    @property
    def revision(self) -> str:
        """The revision to upgrade from."""
        return self.stamp or f"{self.start:04d}"

    def __str__(self) -> str:
        number = "no usable schema version" if self.version is None else f"version {self.version}"
        stamp = f"revision {self.stamp}" if self.stamp else number
        return f"{stamp}, missing: {', '.join(self.holes)}" if self.holes else stamp


def examine(driver: Any) -> Findings:
    """Return what the file is; raise SchemaError for a foreign, newer or unknown one.

    One that claims the newest schema and lacks a column is an old one, whatever its stamp says.
    """
    tables = objects(driver, "table")
    if not tables - {STAMP_TABLE}:
        return Findings("empty")
    _check_fingerprint(driver)
    stamp, version, shape = _stamp(driver, tables), _version(driver), _shape(driver)
    promised = version or shape
    holes = tuple(
        name for k, name in DISCRIMINATORS.items() if k <= promised and not _has(driver, name)
    )
    kind: Kind = "old"
    if stamp == HEAD_REVISION:
        kind = "head"
    elif stamp is None and version == shape == SCHEMA_VERSION:
        kind = "unstamped head"
    if kind != "old" and (lacking := missing_columns(driver)):
        kind, stamp, holes = "old", None, tuple(sorted(lacking | {*holes}))
    return Findings(kind, stamp, version, shape, holes)


def missing_columns(driver: Any) -> set[str]:
    """Return what a file lacks of the newest schema, as `table.column`; own tables aside."""
    needed = {f"{table}.{name}" for table, names in _newest().items() for name in names}
    return needed - {f"{table}.{name}" for table in _newest() for name in columns(driver, table)}


def is_whole(driver: Any) -> bool:
    """Whether `missing_columns` is empty: one statement that only compiles if it is."""
    try:
        driver.execute(_of_all_columns())
    except Exception as error:
        if not str(error).startswith(("no such column", "no such table")):
            raise
        return False
    return True


@cache
def _of_all_columns() -> str:
    parts = (f"EXISTS (SELECT {', '.join(n)} FROM {t} LIMIT 0)" for t, n in _newest().items())
    return f"SELECT {', '.join(parts)}"


@cache
def _newest() -> dict[str, list[str]]:
    """Return the columns of each table that every file of the newest schema has."""
    absent = ON_DEMAND_TABLES | OWN_TABLES
    tables = (table for table in Base.metadata.tables.values() if table.name not in absent)
    return {table.name: table.columns.keys() for table in tables}


def columns(driver: Any, table: str) -> set[str]:
    """Return the names of a table's columns; none when there is no such table."""
    return {row[1] for row in driver.execute(f'PRAGMA table_info("{table}")')}


def objects(driver: Any, *kinds: str) -> set[str]:
    """Return the names of all objects of the given kinds, without SQLite's own."""
    rows = driver.execute("SELECT type, name FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'")
    return {name for kind, name in rows if kind in kinds}


def _check_fingerprint(driver: Any) -> None:
    for table, needed in FINGERPRINT.items():
        rows = driver.execute(f"PRAGMA table_info({table})").fetchall()
        keys = [(name, kind.upper()) for _, name, kind, _, _, key in rows if key]
        is_ours = needed <= {row[1] for row in rows}
        if not is_ours or (table in KEYS and keys != [KEYS[table]]):
            raise SchemaError(
                "the file is not a Hermes state database "
                f"(table {table} is missing or differs): nothing was changed; choose another path"
            )


def _stamp(driver: Any, tables: set[str]) -> str | None:
    if STAMP_TABLE not in tables:
        return None
    stamps = [row[0] for row in driver.execute(f"SELECT version_num FROM {STAMP_TABLE}")]
    if not stamps:
        return None
    check_stamps(stamps)
    return str(stamps[0])


def check_stamps(stamps: list[Any]) -> None:
    """Raise SchemaError unless our version table holds exactly one revision that we know."""
    known = {f"{version:04d}" for version in range(1, SCHEMA_VERSION + 1)} | {HEAD_REVISION}
    if len(stamps) != 1 or stamps[0] not in known:
        found = ", ".join(map(str, stamps))
        raise SchemaError(
            f"the file holds schema revision {found}, this version of hermes_orm knows none after "
            f"{HEAD_REVISION}: nothing was changed; update hermes_orm"
        )


def _version(driver: Any) -> int | None:
    versions = [row[0] for row in driver.execute("SELECT version FROM schema_version LIMIT 2")]
    if len(versions) != 1 or not isinstance(versions[0], int) or versions[0] < 1:
        return None
    if versions[0] > SCHEMA_VERSION:
        raise SchemaError(
            f"the file has schema version {versions[0]}, newer than {SCHEMA_VERSION}: "
            "nothing was changed; update hermes_orm"
        )
    return versions[0]


def _shape(driver: Any) -> int:
    shape = 1
    for version, name in DISCRIMINATORS.items():
        if not _has(driver, name):
            break
        shape = version
    return shape


def _has(driver: Any, name: str) -> bool:
    """Whether a file has an object, a column (`table.column`) or a column in a table's key."""
    is_key = name.startswith("key ")
    table, _, column = name.removeprefix("key ").partition(".")
    if not column:
        return name in objects(driver, "table", "index")
    rows = driver.execute(f"PRAGMA table_info({table})")
    return any(row[1] == column and (row[5] or not is_key) for row in rows)
