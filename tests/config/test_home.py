"""The home directory and the default database path (engine.md 2)."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hermes_orm
from hermes_orm import home
from hermes_orm.location import SqliteLocation, locate


@contextmanager
def override(path: str | Path | None) -> Iterator[None]:
    token = home.set_home_override(path)
    try:
        yield
    finally:
        home.reset_home_override(token)


@pytest.fixture(autouse=True)
def named_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", "/h")


def test_default_path_follows_the_variable() -> None:
    assert locate(None) == SqliteLocation(Path("/h/state.db"))


def test_override_of_the_context_wins_and_is_resolved_at_once() -> None:
    with override("/p"):
        location = locate()
        with override(Path("/q")):
            assert home.hermes_home() == Path("/q")
        assert home.hermes_home() == Path("/p")
    assert location == SqliteLocation(Path("/p/state.db"))
    assert home.hermes_home() == Path("/h")


@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_override_is_none(empty: str | None) -> None:
    with override(empty):
        assert home.hermes_home() == Path("/h")


@pytest.mark.parametrize("value", ["", "   "])
def test_a_blank_variable_means_the_platform_default(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HERMES_HOME", value)
    monkeypatch.setattr(sys, "platform", "linux")
    assert home.hermes_home() == Path.home() / ".hermes"


def test_nothing_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", " ~/x$Y ")
    assert home.hermes_home() == Path("~/x$Y")


@pytest.mark.parametrize(("local", "expected"), [("/local", "/local/hermes"), ("", None)])
def test_windows_default(monkeypatch: pytest.MonkeyPatch, local: str, expected: str | None) -> None:
    monkeypatch.delenv("HERMES_HOME")
    monkeypatch.setenv("LOCALAPPDATA", local)
    monkeypatch.setattr(sys, "platform", "win32")
    fallback = Path.home() / "AppData" / "Local" / "hermes"
    assert home.hermes_home() == (Path(expected) if expected else fallback)


@pytest.mark.parametrize("module", [hermes_orm, home])
def test_an_assigned_default_path_wins(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    monkeypatch.setattr(module, "DEFAULT_DB_PATH", "/elsewhere/x.db", raising=False)
    assert locate() == SqliteLocation(Path("/elsewhere/x.db"))
    with override("/p"):
        assert locate() == SqliteLocation(Path("/elsewhere/x.db"))


def test_the_untouched_default_path_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hermes_orm, "DEFAULT_DB_PATH", home.DEFAULT_DB_PATH, raising=False)
    with override("/p"):
        assert locate() == SqliteLocation(Path("/p/state.db"))
