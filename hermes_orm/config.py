"""The store's settings in `config.yaml` of a Hermes home.

SQLite and session settings are lenient: a value that can't be used is ignored with a warning.
The section `database.postgres` is passed on as it is; its dialect validates it strictly.
"""

import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from hermes_orm.home import hermes_home

logger = logging.getLogger("hermes_orm.config")

MAX_SAFE_RESUME_MESSAGES: Final = 20_000
MAX_SAFE_EXPORT_MESSAGES: Final = 20_000
PRAGMAS: Final = (
    "cache_size",
    "mmap_size",
    "temp_store",
    "wal_autocheckpoint",
    "journal_size_limit",
)

T = TypeVar("T")
Section = Mapping[str, Any]


def _setting(default: T, parse: Callable[[Any], object], variable: str = "") -> T:
    """Declare a setting: its parser raises ValueError; an environment variable wins."""
    metadata = {"parse": parse, "variable": variable}
    return field(default=default, metadata=metadata)


def _integer(least: int = -(2**63), most: int = 2**63 - 1) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        text = "" if isinstance(value, bool) else str(value).strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise ValueError(f"must be an integer from {least} to {most}")
        return int(text)

    return parse


def _word(*words: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or value.strip().lower() not in words:
            raise ValueError(f"must be {' or '.join(words)}")
        return value.strip().lower()

    return parse


def _switch(value: Any) -> bool:
    return str(value).strip().lower() not in ("0", "false", "off", "no")


def _milliseconds(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError("must be a number of milliseconds")
    return number


def _pragmas(section: Section) -> dict[str, int]:
    parsed = ((name, _parsed(name, section.get(name), _integer())) for name in PRAGMAS)
    return {name: value for name, value in parsed if value is not None}


@dataclass(frozen=True)
class SQLiteSettings:
    """Settings of `database.sqlite`; journal mode and pragmas may also stand in `database`.

    `synchronous="normal"`: a power failure can lose the last commits, never damage the file.
    `search_indexing="deferred"`: only where no other kind of program writes the file.
    """

    journal_mode: Literal["wal", "delete"] = _setting("wal", _word("wal", "delete"))
    synchronous: Literal["full", "normal"] = _setting("full", _word("full", "normal"))
    search_indexing: Literal["live", "deferred"] = _setting("live", _word("live", "deferred"))
    auto_migrate: bool = _setting(True, _switch)
    readers: int = _setting(2, _integer(0, 4))
    pragmas: dict[str, int] = field(default_factory=dict, metadata={"parse": _pragmas})


@dataclass(frozen=True)
class SessionSettings:
    """Settings of `sessions`; a limit of 0 switches the guard off."""

    max_resume_messages: int = _setting(MAX_SAFE_RESUME_MESSAGES, _integer(0))
    max_export_messages: int = _setting(MAX_SAFE_EXPORT_MESSAGES, _integer(0))
    search_slow_ms: float = _setting(1000.0, _milliseconds, "HERMES_SEARCH_SLOW_MS")
    cjk_fts: bool = _setting(True, _switch, "HERMES_CJK_FTS")
    trigram_fts: bool = _setting(True, _switch)
    index_in_background: bool = _setting(True, _switch)


class Settings:
    """The settings of one home; a section is read when it is used first."""

    def __init__(self, document: Section) -> None:
        self._document = document
        self._database = _section(document, "database")

    @cached_property
    def sqlite(self) -> SQLiteSettings:
        """Return the settings of a SQLite store; `database.sqlite` wins over `database`."""
        own = _section(self._database, "sqlite")
        given = dict(own)
        for name in ("journal_mode", *PRAGMAS):
            given[name] = self._database.get(name) if own.get(name) is None else own[name]
        return _read(SQLiteSettings, {**given, "pragmas": given})

    @cached_property
    def sessions(self) -> SessionSettings:
        """Return the settings of sessions."""
        return _read(SessionSettings, _section(self._document, "sessions"))

    @property
    def postgres(self) -> object:
        """Return the section `database.postgres` as it is written; None means defaults."""
        return self._database.get("postgres")


def _section(document: Section, name: str) -> Section:
    section = document.get(name)
    return section if isinstance(section, Mapping) else {}


def _read(kind: type[T], given: Section) -> T:
    """Build settings of `kind` from the usable ones of the given values."""
    values: dict[str, Any] = {}
    for item in fields(kind):  # type: ignore[arg-type]  # a dataclass
        raw = os.environ.get(item.metadata.get("variable", ""), given.get(item.name))
        parsed = _parsed(item.name, raw, item.metadata["parse"])
        if parsed is not None:
            values[item.name] = parsed
    return kind(**values)


def _parsed(name: str, raw: Any, parse: Callable[[Any], T]) -> T | None:
    if raw is None:
        return None
    try:
        return parse(raw)
    except ValueError as error:
        logger.warning("config.yaml: %s is ignored, it %s", name, error)
        return None


_loaded: dict[Path, tuple[bytes | None, Settings]] = {}


def load_settings(home: Path) -> Settings:
    """Return the settings in `config.yaml` of `home`; a missing file means defaults.

    The same object is returned as long as the file's content stays the same. A file that can't be
    read or parsed is warned about once; the last good settings of this process, else the defaults,
    stay in force.
    """
    path = home / "config.yaml"
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        content = b""
    except OSError:
        content = None
    known, settings = _loaded.setdefault(path, (b"", Settings({})))
    if content != known:
        settings = _parse(path, content) or settings
        _loaded[path] = (content, settings)
    return settings


def _parse(path: Path, content: bytes | None) -> Settings | None:
    """Return the settings in `content`, or None with a warning that shows none of it."""
    if content is None:
        logger.warning("%s can't be read; its former settings or the defaults are used", path)
        return None
    if not content.strip():
        return Settings({})
    import yaml

    try:
        document = yaml.safe_load(content)
        if document is None:
            return Settings({})
        if not isinstance(document, Mapping):
            raise TypeError
    except Exception as error:  # noqa: BLE001  # whatever is wrong with it: the store must open
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" (line {mark.line + 1})"
        logger.warning(
            "%s is no valid YAML mapping%s; its former settings or the defaults are used",
            path,
            line,
        )
        return None
    return Settings(document)


async def resolved_max_resume_messages() -> int:
    """Return `sessions.max_resume_messages` of the home that is active now."""
    return load_settings(hermes_home()).sessions.max_resume_messages


async def resolved_max_export_messages() -> int:
    """Return `sessions.max_export_messages` of the home that is active now."""
    return load_settings(hermes_home()).sessions.max_export_messages


async def resolve_journal_mode() -> str:
    """Return the configured journal mode, `wal` or `delete`, of the home that is active now."""
    return load_settings(hermes_home()).sqlite.journal_mode
