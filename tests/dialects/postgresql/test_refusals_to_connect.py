"""What the error of a connection that a server refused tells to do."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import make_url

from hermes_orm import SessionDB, migrations
from hermes_orm.errors import SchemaError
from tests.conftest import DRIVERS

POSTGRES = [driver for driver in DRIVERS if driver != "sqlite"]


@pytest.mark.parametrize("driver", POSTGRES)
async def test_a_missing_database_has_to_be_created(
    make_location: Callable[..., str], driver: str
) -> None:
    missing = make_url(make_location(driver)).set(database="no_such_database")
    async with SessionDB(missing.render_as_string(hide_password=False)) as db:
        with pytest.raises(Exception, match=r'"no_such_database" does not exist.*CREATE DATABASE'):
            await db.session_count()


@pytest.mark.parametrize("driver", POSTGRES)
async def test_a_missing_schema_is_named_by_migrations(
    make_location: Callable[..., str],
    driver: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "config.yaml").write_text("database: {postgres: {schema: nowhere}}")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    with pytest.raises(SchemaError, match="'nowhere': create it"):
        await migrations.upgrade(make_location(driver, empty=True))
