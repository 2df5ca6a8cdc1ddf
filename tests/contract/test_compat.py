"""Code written for the existing modules changes one import line."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import hermes_orm
from hermes_orm.compat import hermes_state, hermes_state_postgres

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = [
    entry["name"]
    for entry in json.loads((FIXTURES / "surface.json").read_text())["names"]
    if entry["owner"] == "hermes_orm"
]


def test_both_modules_have_every_public_name() -> None:
    for name in NAMES:
        assert getattr(hermes_state, name) is getattr(hermes_orm, name)
        assert hasattr(hermes_state_postgres, name)
    assert {*NAMES} <= {*hermes_state.__all__} == {*hermes_state_postgres.__all__}


def test_the_store_for_postgresql_differs_by_what_it_accepts_only() -> None:
    # engine 1, 7
    ours, theirs = hermes_orm.SessionDB, hermes_state_postgres.SessionDB
    assert issubclass(theirs, ours)
    assert inspect.signature(theirs) == inspect.signature(ours)
    refused: list[Any] = [(None, r"explicit.*postgresql\+psycopg")]
    refused += [(path, r"postgresql\+psycopg") for path in ("state.db", "postgresql://u@h/d")]
    for db_path, text in refused:
        with pytest.raises(ValueError, match=text):
            theirs(db_path)


async def test_a_store_of_the_module_works(location: str) -> None:
    module = hermes_state_postgres if location.startswith("postgresql") else hermes_state
    async with module.SessionDB(location) as db:
        await db.create_session("s", "cli")
        assert await db.message_count("s") == 0


def test_a_host_can_move_the_default_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hermes_state, "DEFAULT_DB_PATH", tmp_path / "moved.db")
    assert hermes_state.SessionDB().db_path == tmp_path / "moved.db"
