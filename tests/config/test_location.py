"""What `db_path` may be, and that nothing ever shows a password (engine.md 1 and 5.1)."""

import os
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_orm.dialects.postgresql.options import engine_options
from hermes_orm.location import (
    Endpoint,
    PostgresLocation,
    SqliteLocation,
    locate,
    locate_postgres,
    parse_options,
    render_options,
)


class NamedPath(os.PathLike[str]):
    def __fspath__(self) -> str:
        return "sqlite:///verbatim"


class EmptyPath(os.PathLike[str]):
    def __fspath__(self) -> str:
        return ""


def postgres(url: str) -> PostgresLocation:
    location = locate(url)
    assert isinstance(location, PostgresLocation)
    return location


@pytest.mark.parametrize(
    ("db_path", "expected"),
    [
        ("a/b.db", "a/b.db"),
        (Path("/a/b.db"), "/a/b.db"),
        (NamedPath(), "sqlite:/verbatim"),
        ("~/$X/a?b#c%41.db", "~/$X/a?b#c%41.db"),
        ("file:x.db?mode=ro", "file:x.db?mode=ro"),
        ("sqlite:///rel.db", "rel.db"),
        ("sqlite+aiosqlite:////abs/a%3Fb.db", "/abs/a?b.db"),
        (":memory:", ":memory:"),
        ("sqlite:///:memory:", ":memory:"),
    ],
)
def test_sqlite(db_path: object, expected: str) -> None:
    location = locate(db_path)
    assert location == SqliteLocation(Path(expected))
    assert isinstance(location, SqliteLocation)
    assert location.is_memory == (expected == ":memory:")
    assert str(location) == expected


@pytest.mark.parametrize("tail", ["", "/", "h/x", "h/x%20y", "/x?a=b", "/?a"])
def test_unusable_sqlite_forms(tail: str) -> None:
    with pytest.raises(ValueError, match="sqlite:///path"):
        locate(f"sqlite://{tail}")


@pytest.mark.parametrize("db_path", ["", EmptyPath()])
def test_an_empty_path(db_path: object) -> None:
    with pytest.raises(ValueError, match="db_path must not be empty"):
        locate(db_path)


@pytest.mark.parametrize("db_path", [b"x", 3, True, [], os.fsencode("x")])
def test_wrong_types(db_path: object) -> None:
    with pytest.raises(TypeError, match="db_path"):
        locate(db_path)


@pytest.mark.parametrize(
    "scheme",
    ["postgresql", "postgres", "postgresql+psycopg2", "mysql", "POSTGRESQL+ASYNCPG", "SQLite"],
)
def test_other_schemes_name_the_accepted_forms(scheme: str) -> None:
    with pytest.raises(ValueError, match=r"postgresql\+asyncpg.*postgresql\+psycopg"):
        locate(f"{scheme}://u@h/db")


@pytest.mark.parametrize("tail", ["h", "h/", "/db", "u:p@/db", "", "/", "u@:5432/db", "/db?host="])
def test_host_and_database_are_required(tail: str) -> None:
    with pytest.raises(ValueError, match="host and database"):
        locate(f"postgresql+asyncpg://{tail}")


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1", "5432x", "²"])
def test_an_invalid_port_fails_at_construction(port: str) -> None:
    for tail in (f"u@h:{port}/db", f"u@[::1]:{port}/db", f"/db?host=h&port={port}"):
        with pytest.raises(ValueError, match="port must be a number"):
            locate(f"postgresql+psycopg://{tail}")


@pytest.mark.parametrize(
    ("tail", "endpoints"),
    [
        ("u@h/db", [Endpoint("h")]),
        ("u@h:/db", [Endpoint("h")]),
        ("u@h:5433/db", [Endpoint("h", 5433)]),
        ("[fe80::1]:5433/db", [Endpoint("fe80::1", 5433)]),
        ("/db?host=::1", [Endpoint("::1")]),
        ("/db?host=/run/pg", [Endpoint("/run/pg")]),
        ("u@:5433/db?host=/run/pg", [Endpoint("/run/pg", 5433)]),
        ("%2Frun%2Fpg/db", [Endpoint("/run/pg")]),
        ("a:1,b:2/db", [Endpoint("a", 1), Endpoint("b", 2)]),
        ("/db?host=a:1&host=b:2", [Endpoint("a", 1), Endpoint("b", 2)]),
        ("/db?host=a,b&port=1,2", [Endpoint("a", 1), Endpoint("b", 2)]),
        ("/db?host=a,b&port=3", [Endpoint("a", 3), Endpoint("b", 3)]),
    ],
)
def test_endpoints(tail: str, endpoints: list[Endpoint]) -> None:
    for driver in ("asyncpg", "psycopg"):
        assert postgres(f"postgresql+{driver}://{tail}").endpoints == tuple(endpoints)


@pytest.mark.parametrize("tail", ["a,b/db?port=1,2,3", "a,,b/db", "a b/db", "[x]/db", "a@b@c/db"])
def test_impossible_hosts(tail: str) -> None:
    with pytest.raises(ValueError, match="invalid database URL"):
        locate(f"postgresql+asyncpg://{tail}")


def test_credentials_and_database_are_decoded() -> None:
    location = postgres("postgresql+asyncpg://a%40b:p%2F%3A%40@h/d%20b")
    assert (location.username, location.password, location.database) == ("a@b", "p/:@", "d b")
    assert str(location) == "postgresql+asyncpg://a%40b:***@h/d%20b"


def test_the_text_keeps_everything_but_passwords() -> None:
    location = postgres("postgresql+psycopg://u:s3cret@h/db?sslmode=require&sslpassword=s3cret")
    assert str(location) == "postgresql+psycopg://u:***@h/db?sslmode=require&sslpassword=***"
    assert repr(location) == f"PostgresLocation({str(location)!r})"


def test_query_of_asyncpg_is_spelt_as_its_arguments() -> None:
    location = postgres(
        "postgresql+asyncpg://h/db?options=-c%20jit%3Don%20-cwork_mem%3D1MB&application_name=app"
        "&sslmode=require&target_session_attrs=read-write&connect_timeout=7"
        "&prepared_statement_cache_size=9"
    )
    assert location.settings == {"jit": "on", "work_mem": "1MB", "application_name": "app"}
    assert location.arguments == {
        "ssl": "require",
        "target_session_attrs": "read-write",
        "timeout": 7,
        "prepared_statement_cache_size": 9,
    }


def test_query_of_psycopg_is_passed_on() -> None:
    location = postgres("postgresql+psycopg://h/db?options=-cjit%3Don&sslmode=require&keepalives=1")
    assert location.settings == {"jit": "on"}
    assert location.arguments == {"sslmode": "require", "keepalives": "1"}


@pytest.mark.parametrize(
    ("driver", "query", "message"),
    [
        ("asyncpg", "options=-d%201", "options must consist of -c name=value"),
        ("psycopg", "options=-d%201", "options must consist of -c name=value"),
        ("psycopg", "options=-c", "options must consist of -c name=value"),
        ("asyncpg", "sslrootcert=x", "asyncpg .*sslrootcert"),
        ("psycopg", "prepared_statement_cache_size=1", "psycopg .*prepared_statement_cache_size"),
        ("asyncpg", "prepared_statement_cache_size=x", "prepared_statement_cache_size must be"),
        ("asyncpg", "connect_timeout=0", "connect_timeout must be"),
        ("psycopg", "sslmode=a&sslmode=b", "twice"),
        ("psycopg", "options=-cDefault-transaction-read-only%3Doff", "controlled by read_only"),
    ],
)
def test_refused_parameters(driver: str, query: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        locate(f"postgresql+{driver}://h/db?{query}")


def test_a_store_that_is_postgresql_only() -> None:
    with pytest.raises(ValueError, match=r"explicit.*postgresql\+psycopg"):
        locate_postgres(None)
    for wrong in ("state.db", "postgresql://u@h/db", "sqlite:///x"):
        with pytest.raises(ValueError, match=r"postgresql\+psycopg"):
            locate_postgres(wrong)
    assert locate_postgres("postgresql+psycopg://h/db").database == "db"


@given(st.dictionaries(st.from_regex("[a-z_]{1,9}", fullmatch=True), st.text(), max_size=4))
def test_options_round_trip(settings: dict[str, str]) -> None:
    assert parse_options(render_options(settings)) == settings


signs = st.one_of(st.sampled_from("@:/?#%&=+,[] '"), st.characters())
passwords = st.text(signs, max_size=6).map("5ekret".__add__).filter(str.isprintable)
shapes = st.sampled_from(
    [
        "postgresql+{driver}://u:{password}@h/db",
        "postgresql+{driver}://u:{password}@h1:1,h2/db?application_name=x",
        "postgresql+{driver}://u:{password}@/db?host=/run/pg",
        "postgresql+{driver}://u:{password}@h:port/db",
        "postgresql+{driver}://u:{password}@h/db?unknown=1&options=-d",
        "postgresql+{driver}://u:{password}/db",
        "postgresql+{driver}://u:{password}@h",
        "postgresql+{driver}://u@h/db?password={password}",
        " postgresql+{driver}://u:{password}@h/db",
        "postgresql://u:{password}@h/db",
        "postgresql+{driver}2://u:{password}@h/db",
        "sqlite://u:{password}@h/db",
    ]
)


@given(shapes, st.sampled_from(["asyncpg", "psycopg"]), passwords, st.booleans())
def test_no_text_shows_a_password(shape: str, driver: str, password: str, encoded: bool) -> None:
    """Raw passwords are tried too: users forget to encode them."""
    spelt = quote(password, safe="") if encoded else password
    secrets = (password, spelt, password[:6])
    try:
        location = locate(shape.format(driver=driver, password=spelt))
        assert isinstance(location, PostgresLocation)
        options = engine_options(location)
    except ValueError as error:
        shown = [str(error), repr(error), repr(error.__cause__ or error.__context__)]
    else:
        known = location.password or str(location.arguments["password"])
        assert known == password or not encoded
        told = location.mask(f"cannot use {known} and {quote(known, safe='')} of x://u:{known}@h")
        shown = [str(location), repr(location), repr(options), str(options.url), told]
    assert not [secret for secret in secrets for text in shown if secret in text]
