"""`database.postgres` and what reaches the engine (engine.md 5.1, 5.2, 5.8, 5.9)."""

import logging
import math
import re
from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from hermes_orm.dialects.postgresql.options import EngineOptions, engine_options
from hermes_orm.location import Driver, PostgresLocation, locate_postgres

DRIVERS: tuple[Driver, ...] = ("asyncpg", "psycopg")
drivers = pytest.mark.parametrize("driver", DRIVERS)


def location(driver: Driver, query: str = "") -> PostgresLocation:
    return locate_postgres(f"postgresql+{driver}://u:s3cret@h/db{query}")


def options(
    driver: Driver, section: object = None, query: str = "", read_only: bool = False
) -> EngineOptions:
    return engine_options(location(driver, query), section, read_only=read_only)


def startup(found: EngineOptions) -> dict[str, str]:
    """Return the run-time parameters that are sent, whatever the driver's form is."""
    arguments = found.kwargs["connect_args"]
    if found.driver == "asyncpg":
        return dict(arguments.get("server_settings", {}))
    words = arguments.get("options", "").replace("-c ", "").split()
    sent = dict(word.split("=", 1) for word in words)
    if "application_name" in arguments:
        sent["application_name"] = arguments["application_name"]
    return sent


def fails(driver: Driver, section: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)) as caught:
        options(driver, section)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("section", "text"),
    [
        (5, "database.postgres must be a mapping"),
        ([], "database.postgres must be a mapping"),
        (False, "database.postgres must be a mapping"),
        ({"pool_szie": 2, "a": 1}, "database.postgres contains unsupported key(s): a, pool_szie"),
        ({1: 2}, "database.postgres contains unsupported key(s): 1"),
        ({"schema_name": "x"}, "unsupported key(s): schema_name"),
        ({"pool_size": True}, "database.postgres.pool_size must be an integer"),
        ({"pool_size": "5"}, "database.postgres.pool_size must be an integer"),
        ({"pool_size": 1.0}, "database.postgres.pool_size must be an integer"),
        ({"pool_size": None}, "database.postgres.pool_size must be an integer"),
        ({"pool_size": -1}, "database.postgres.pool_size must be >= 0"),
        ({"max_overflow": -2}, "database.postgres.max_overflow must be >= -1"),
        ({"pool_timeout": True}, "database.postgres.pool_timeout must be a number"),
        ({"pool_timeout": "30"}, "database.postgres.pool_timeout must be a number"),
        ({"pool_timeout": math.inf}, "database.postgres.pool_timeout must be finite"),
        ({"pool_timeout": -1}, "database.postgres.pool_timeout must be >= 0"),
        ({"pool_recycle": math.nan}, "database.postgres.pool_recycle must be finite"),
        ({"pool_recycle": -2}, "database.postgres.pool_recycle must be >= -1"),
        ({"pool_pre_ping": 1}, "database.postgres.pool_pre_ping must be a boolean"),
        ({"pool_use_lifo": "no"}, "database.postgres.pool_use_lifo must be a boolean"),
        ({"pooler": 0}, "database.postgres.pooler must be a boolean"),
        ({"schema": 3}, "database.postgres.schema must be a string"),
        ({"schema": "a,b"}, "database.postgres.schema must be a plain schema name"),
        ({"schema": "a\n"}, "database.postgres.schema must be a plain schema name"),
        ({"profile": 1}, "database.postgres.profile must be a string"),
        ({"connect_args": 3}, "database.postgres.connect_args must be a mapping"),
        ({"connect_args": []}, "database.postgres.connect_args must be a mapping"),
        (
            {"connect_args": {"password": "s3cret", "b": 1}},
            "database.postgres.connect_args contains unsupported key(s): b, password",
        ),
    ],
)
@drivers
def test_invalid_settings(driver: Driver, section: Any, text: str) -> None:
    fails(driver, section, text)


@pytest.mark.parametrize(
    ("driver", "arguments", "text"),
    [
        ("psycopg", {"timeout": 60}, " contains unsupported key(s): timeout"),
        ("psycopg", {"connect_timeout": 0}, ".connect_timeout must be >= 1"),
        ("psycopg", {"connect_timeout": None}, ".connect_timeout must be an integer"),
        ("psycopg", {"connect_timeout": 1.5}, ".connect_timeout must be an integer"),
        ("psycopg", {"prepare_threshold": -1}, ".prepare_threshold must be >= 0"),
        ("psycopg", {"application_name": 3}, ".application_name must be a string"),
        ("psycopg", {"options": {}}, ".options must be a string"),
        ("psycopg", {"options": "-d 1"}, ".options must consist of -c name=value"),
        ("psycopg", {"options": "-c default_transaction_read_only=off"}, "reserved"),
        ("asyncpg", {"connect_timeout": 5}, " contains unsupported key(s): connect_timeout"),
        ("asyncpg", {"timeout": -1}, ".timeout must be >= 0"),
        ("asyncpg", {"command_timeout": 0}, ".command_timeout must be > 0"),
        ("asyncpg", {"command_timeout": True}, ".command_timeout must be a number"),
        ("asyncpg", {"statement_cache_size": "1"}, ".statement_cache_size must be an integer"),
        ("asyncpg", {"server_settings": "x"}, ".server_settings must be a mapping"),
        ("asyncpg", {"server_settings": {"jit": 1}}, ".server_settings.jit must be a string"),
        ("asyncpg", {"server_settings": {"default_transaction_read_only": "off"}}, "reserved"),
    ],
)
def test_invalid_connect_args(driver: Driver, arguments: Any, text: str) -> None:
    fails(driver, {"connect_args": arguments}, text)


def test_an_error_never_shows_a_value() -> None:
    with pytest.raises(ValueError, match="must be a string") as caught:
        options("asyncpg", {"connect_args": {"server_settings": {"x": ["s3cret"]}}})
    assert "s3cret" not in str(caught.value)


@drivers
@pytest.mark.parametrize("section", [None, {}, {"connect_args": None}])
def test_defaults(driver: Driver, section: object) -> None:
    found = options(driver, section)
    pool = {name: value for name, value in found.kwargs.items() if name != "connect_args"}
    assert pool == {
        "pool_size": 5,
        "max_overflow": 10,
        "pool_timeout": 30.0,
        "pool_recycle": -1,
        "pool_use_lifo": False,
        "pool_pre_ping": False,
        "hide_parameters": True,
    }
    assert (found.ping, found.pooler, found.schema, found.profile) == (True, False, None, None)
    assert startup(found) == {
        "jit": "off",
        "lock_timeout": "1000",
        "application_name": "hermes_orm",
    }


def test_statement_caches() -> None:
    cases: list[tuple[dict[str, Any], str, int, int]] = [
        ({}, "", 1000, 1000),
        ({"connect_args": {"statement_cache_size": 7}}, "", 7, 7),
        ({}, "?prepared_statement_cache_size=9", 1000, 9),
        ({"pooler": True}, "?prepared_statement_cache_size=9", 0, 0),
    ]
    for section, query, driver_size, dialect_size in cases:
        arguments = options("asyncpg", section, query).kwargs["connect_args"]
        assert arguments["statement_cache_size"] == driver_size
        assert arguments["prepared_statement_cache_size"] == dialect_size
    assert options("asyncpg").kwargs["connect_args"]["max_cacheable_statement_size"] == 0


@drivers
def test_values_of_the_user_win_over_ours(driver: Driver) -> None:
    query = "?options=-c%20jit%3Don%20-c%20lock_timeout%3D7&application_name=url"
    found = options(driver, query=query)
    assert startup(found) == {"jit": "on", "lock_timeout": "7", "application_name": "url"}
    own: dict[Driver, Any] = {
        "asyncpg": {"server_settings": {"Lock_Timeout": "5000", "application_name": "own"}},
        "psycopg": {"options": "-cLock-Timeout=5000", "application_name": "own"},
    }
    found = options(driver, {"connect_args": own[driver]}, query)
    assert startup(found) == {"jit": "on", "lock_timeout": "5000", "application_name": "own"}


@drivers
def test_a_read_only_store_asks_the_server_to_refuse_writes(driver: Driver) -> None:
    sent = startup(options(driver, read_only=True))
    assert sent["default_transaction_read_only"] == "on"
    assert "default_transaction_read_only" not in startup(
        options(driver, {"pooler": True}, read_only=True)
    )


@drivers
def test_schema_of_url_and_settings(driver: Driver) -> None:
    query = "?options=-csearch_path%3DAgent_A"
    for found in (
        options(driver, query=query),
        options(driver, {"schema": "agent_a"}),
        options(driver, {"schema": "agent_a"}, query),
    ):
        assert found.schema == "agent_a"
        assert startup(found)["search_path"] == "agent_a"
    with pytest.raises(ValueError, match="schema and the requested search_path differ"):
        options(driver, {"schema": "agent_b"}, query)
    listed = options(driver, query="?options=-csearch_path%3Da,b")
    assert (listed.schema, startup(listed)["search_path"]) == (None, "a,b")


@drivers
def test_behind_a_pooler_nothing_of_ours_is_sent(driver: Driver) -> None:
    found = options(driver, {"pooler": True, "schema": "agent_a"})
    assert (found.pooler, found.schema, startup(found)) == (True, "agent_a", {})
    assert not found.kwargs["connect_args"].keys() & {"server_settings", "options"}
    named = options(driver, {"pooler": True}, "?application_name=x&options=-csearch_path%3Da")
    assert (named.schema, startup(named)) == ("a", {"application_name": "x"})


def test_prepared_statements_behind_a_pooler() -> None:
    psycopg = options("psycopg", {"pooler": True, "connect_args": {"prepare_threshold": 3}})
    assert psycopg.kwargs["connect_args"]["prepare_threshold"] is None
    name = options("asyncpg", {"pooler": True}).kwargs["connect_args"][
        "prepared_statement_name_func"
    ]
    assert name() == ""  # unnamed: nothing stays at the server


def test_arguments_of_the_driver_arrive() -> None:
    psycopg = options(
        "psycopg",
        {"connect_args": {"connect_timeout": 3, "prepare_threshold": None}},
        "?connect_timeout=9&sslmode=require",
    ).kwargs["connect_args"]
    assert psycopg["connect_timeout"] == 3
    assert psycopg["prepare_threshold"] is None
    assert psycopg["sslmode"] == "require"
    asyncpg = options(
        "asyncpg", {"connect_args": {"timeout": 3, "command_timeout": None}}, "?sslmode=require"
    ).kwargs["connect_args"]
    assert asyncpg["timeout"] == 3
    assert asyncpg["ssl"] == "require"
    assert "command_timeout" not in asyncpg
    assert "prepare_threshold" not in options("psycopg").kwargs["connect_args"]


@pytest.mark.parametrize("section", [{"pool_size": 0}, {"max_overflow": -1}])
def test_unbounded_pools_are_warned_about(
    section: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    options("asyncpg")
    assert not caplog.records
    options("asyncpg", section)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize(
    ("tail", "asyncpg", "psycopg"),
    [
        ("u:p%40@h:77/d", ("h", 77), ("h", 77)),
        ("u:p%40@[::1]/d", ("::1", None), ("::1", None)),
        ("u:p%40@/d?host=/run/pg", ("/run/pg", None), ("/run/pg", None)),
        ("u:p%40@:77/d?host=/run/pg", ("/run/pg", 77), ("/run/pg", "77")),
        ("u:p%40@a:1,[::1]/d", (["a", "::1"], [1, 5432]), ("a,::1", "1,5432")),
    ],
)
def test_servers_reach_the_driver(tail: str, asyncpg: Any, psycopg: Any) -> None:
    for driver, expected in (("asyncpg", asyncpg), ("psycopg", psycopg)):
        found = engine_options(locate_postgres(f"postgresql+{driver}://{tail}"))
        engine = create_async_engine(found.url, **found.kwargs)
        _, arguments = engine.dialect.create_connect_args(engine.url)
        assert (arguments["host"], arguments.get("port")) == expected
        assert (arguments["user"], arguments["password"]) == ("u", "p@")
        assert arguments.get("database", arguments.get("dbname")) == "d"
        text = found.url.render_as_string(hide_password=False)
        assert make_url(text) == found.url


@drivers
def test_no_text_of_the_options_shows_the_password(driver: Driver) -> None:
    query = "?password=s3cret" if driver == "psycopg" else ""
    found = options(driver, query=query)
    assert "s3cret" not in repr(found) + str(found) + str(found.url)
