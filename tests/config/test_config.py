"""`config.yaml`: lenient for SQLite and sessions, kept when it breaks (engine.md 2, 4.3, 4.4)."""

import logging
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import config
from hermes_orm.config import Settings, SQLiteSettings, load_settings

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write `config.yaml` of a home, which is the active one, and return the home."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))

    def write(text: str) -> Path:
        (tmp_path / "config.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "other: 1", "database: 3", "database:\n sqlite: []"]
)
def test_defaults(write: Write, text: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = load_settings(write(text))
    assert settings.sqlite == SQLiteSettings()
    assert settings.sqlite.journal_mode == "wal"
    assert settings.sqlite.pragmas == {}
    assert settings.postgres is None
    assert settings.sessions.max_resume_messages == 20_000
    assert not caplog.records


def test_a_missing_home_means_defaults(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for home in (tmp_path / "none", tmp_path / "file"):
        assert load_settings(home).sqlite == SQLiteSettings()


@pytest.mark.parametrize(
    ("value", "mode"),
    [
        ("DELETE", "delete"),
        (" delete ", "delete"),
        ("WAL", "wal"),
        ("truncate", "wal"),
        (42, "wal"),
        (None, "wal"),
        ([], "wal"),
        (False, "wal"),
    ],
)
def test_journal_mode(value: Any, mode: str) -> None:
    assert Settings({"database": {"journal_mode": value}}).sqlite.journal_mode == mode


def test_the_sqlite_section_wins_over_the_database_section(write: Write) -> None:
    settings = load_settings(
        write("""
            database:
              journal_mode: delete
              cache_size: "-4096"
              mmap_size: 1
              temp_store: 2
              sqlite: {journal_mode: wal, mmap_size: 0, temp_store: null, wal_autocheckpoint: 500}
        """)
    )
    assert settings.sqlite.journal_mode == "wal"
    assert settings.sqlite.pragmas == {
        "cache_size": -4096,
        "mmap_size": 0,
        "temp_store": 2,
        "wal_autocheckpoint": 500,
    }


@pytest.mark.parametrize("value", [True, 1.5, "x", "1.0", "", [], 2**63, "1; DROP TABLE x"])
def test_a_pragma_that_is_no_integer_is_ignored_with_a_warning(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings({"database": {"cache_size": value, "mmap_size": 7}})
    assert settings.sqlite.pragmas == {"mmap_size": 7}
    assert settings.sqlite.pragmas == {"mmap_size": 7}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "cache_size" in caplog.text


@pytest.mark.parametrize(
    ("name", "usable", "unusable"),
    [
        ("synchronous", "NORMAL", "off"),
        ("search_indexing", "deferred", 3),
        ("readers", 4, 5),
        ("readers", 0, -1),
    ],
)
def test_choices_of_sqlite(
    name: str, usable: Any, unusable: Any, caplog: pytest.LogCaptureFixture
) -> None:
    given = getattr(Settings({"database": {"sqlite": {name: usable}}}).sqlite, name)
    assert given == (usable.lower() if isinstance(usable, str) else usable)
    assert not caplog.records
    kept = getattr(Settings({"database": {"sqlite": {name: unusable}}}).sqlite, name)
    assert kept == getattr(SQLiteSettings(), name)
    assert name in caplog.text


@pytest.mark.parametrize("value", [False, "off", "No", 0, "false"])
def test_auto_migrate_can_be_switched_off(value: Any) -> None:
    assert not Settings({"database": {"sqlite": {"auto_migrate": value}}}).sqlite.auto_migrate


@pytest.mark.parametrize(
    ("value", "limit"),
    [(5, 5), ("7", 7), (0, 0), (None, 20_000), (-1, 20_000), ("x", 20_000), (True, 20_000)],
)
async def test_limits(write: Write, value: Any, limit: int) -> None:
    text = "null" if value is None else repr(value)
    write(f"sessions: {{max_resume_messages: {text}, max_export_messages: {text}}}")
    assert await config.resolved_max_resume_messages() == limit
    assert await config.resolved_max_export_messages() == limit


async def test_limits_follow_the_file(write: Write) -> None:
    write("sessions: {max_resume_messages: 1}")
    assert await config.resolved_max_resume_messages() == 1
    write("sessions: {max_resume_messages: 2}")
    assert await config.resolved_max_resume_messages() == 2
    write("database: {journal_mode: delete}")
    assert await config.resolved_max_resume_messages() == config.MAX_SAFE_RESUME_MESSAGES
    assert await config.resolve_journal_mode() == "delete"


@pytest.mark.parametrize(
    ("value", "expected"), [("250", 250), ("0", 0), ("x", 1000), ("", 1000), ("nan", 1000)]
)
def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch, value: str, expected: float) -> None:
    document = {"sessions": {"search_slow_ms": 3.5, "cjk_fts": True}}
    assert Settings(document).sessions.search_slow_ms == 3.5
    monkeypatch.setenv("HERMES_SEARCH_SLOW_MS", value)
    monkeypatch.setenv("HERMES_CJK_FTS", " OFF ")
    assert Settings(document).sessions.search_slow_ms == expected
    assert not Settings(document).sessions.cjk_fts


def test_an_empty_cjk_switch_means_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_CJK_FTS", "")
    assert Settings({}).sessions.cjk_fts


@pytest.mark.parametrize(
    "broken", ["database: [s3cret", "- a list", "a: 2024-02-31", "a: !!int ''", "\udc80"]
)
def test_a_broken_file_keeps_the_last_good_settings(
    write: Write, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    home = write("database: {journal_mode: delete}")
    good = load_settings(home)
    (home / "config.yaml").write_bytes(broken.encode(errors="surrogateescape"))
    assert load_settings(home) is good
    assert load_settings(home) is good
    assert len(caplog.records) == 1
    assert str(home / "config.yaml") in caplog.text
    assert "s3cret" not in caplog.text
    assert load_settings(write("database: {journal_mode: wal}")).sqlite.journal_mode == "wal"


def test_a_file_that_was_never_good_means_defaults(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    home = write("database: {")
    for _ in range(3):
        assert load_settings(home).sqlite == SQLiteSettings()
    assert len(caplog.records) == 1


def test_an_unreadable_file_means_defaults(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config.yaml").mkdir()
    for _ in range(2):
        assert load_settings(tmp_path).sqlite == SQLiteSettings()
    assert "can't be read" in caplog.text
    assert len(caplog.records) == 1
