"""Where a store lives: the argument `db_path` as a SQLite file or a PostgreSQL database.

No text of this module contains a password: errors name the part that is wrong, never its value.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NoReturn, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode

from hermes_orm.home import default_db_path

Driver: TypeAlias = Literal["asyncpg", "psycopg"]

_SCHEME = re.compile(r"[\s'\"]*([A-Za-z][\w+.-]*)://")
_DSN = re.compile(
    r"""
    postgresql\+(?:asyncpg|psycopg)://
    (?:(?P<username>[^:/?@]*)(?::(?P<password>[^@]*))?@)?
    (?P<authority>[^/?]*)
    (?:/(?P<database>[^?@]*))?
    (?:\?(?P<query>.*))?
    """,
    re.VERBOSE | re.DOTALL,
)
_ENDPOINT = re.compile(
    r"(?:\[([\da-fA-F:.]+(?:%\w+)?)\]|(/[^:]*|[^\s:/@\[\]]+))(?::(.*))?", re.DOTALL
)
_FORMS: Final = (
    "postgresql+asyncpg://user:password@host/database or"
    " postgresql+psycopg://user:password@host/database"
)
_ASYNCPG_NAMES: Final = {  # names in the URL -> arguments of asyncpg
    "sslmode": "ssl",
    "target_session_attrs": "target_session_attrs",
    "connect_timeout": "timeout",
    "prepared_statement_cache_size": "prepared_statement_cache_size",
}


@dataclass(frozen=True)
class SqliteLocation:
    """A SQLite file, or the private database of one connection (`:memory:`)."""

    path: Path

    @property
    def is_memory(self) -> bool:
        """Tell whether the database lives in memory only."""
        return str(self.path) == ":memory:"

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class Endpoint:
    """A server: host name, address or socket directory, and its port where one is given."""

    host: str
    port: int | None = None


@dataclass(frozen=True, repr=False)
class PostgresLocation:
    """A PostgreSQL database; `str()` and `repr()` hide the password.

    `settings` are the run-time parameters that the URL asks for (`-c name=value`, application
    name); `arguments` are the driver's own connect arguments.
    """

    driver: Driver
    endpoints: tuple[Endpoint, ...]
    database: str
    masked: str
    username: str | None = None
    password: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str | int] = field(default_factory=dict)

    def mask(self, text: str) -> str:
        """Return `text` with this location's password and those in URLs replaced."""
        text = re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:***@", text)
        secrets = {self.password, str(self.arguments.get("password", ""))} - {None, ""}
        for secret in {form for s in secrets if s for form in (s, quote(s), quote(s, safe=""))}:
            text = text.replace(secret, "***")
        return text

    def __str__(self) -> str:
        return self.masked

    def __repr__(self) -> str:
        return f"PostgresLocation({self.masked!r})"


Location: TypeAlias = SqliteLocation | PostgresLocation


def locate(db_path: object = None) -> Location:
    """Return the location that `db_path` names, without touching files or the network.

    None is the default database of the home that is active now. A path is used verbatim. A string
    with `scheme://` must be `sqlite:///path` or one of the two PostgreSQL forms. A location is
    returned as it is.
    """
    if isinstance(db_path, SqliteLocation | PostgresLocation):
        return db_path
    if db_path is None:
        return SqliteLocation(default_db_path())
    if not isinstance(db_path, (str, os.PathLike)):
        raise TypeError(f"db_path must be a path, a URL or None, not {type(db_path).__name__}")
    text = os.fspath(db_path)
    if not isinstance(text, str):
        raise TypeError("db_path must be a text path; decode it with os.fsdecode()")
    if not text:
        raise ValueError("db_path must not be empty; pass None for the default database")
    scheme = _SCHEME.match(text) if isinstance(db_path, str) else None
    if scheme is None:
        return SqliteLocation(Path(text))
    return _parse_url(scheme[1], text)


def locate_postgres(db_path: object) -> PostgresLocation:
    """Return the PostgreSQL location that `db_path` names; anything else is a ValueError."""
    if db_path is None:
        raise ValueError(f"db_path must be an explicit database URL: {_FORMS}")
    match locate(db_path):
        case PostgresLocation() as location:
            return location
        case _:
            raise ValueError(f"db_path must be a database URL: {_FORMS}")


def _parse_url(scheme: str, url: str) -> Location:
    if scheme in ("sqlite", "sqlite+aiosqlite"):
        path = url.removeprefix(f"{scheme}:///")
        if path in ("", url) or "?" in path:
            _reject("SQLite takes sqlite:///path without a query")
        return SqliteLocation(Path(unquote(path)))
    if scheme not in ("postgresql+asyncpg", "postgresql+psycopg"):
        raise ValueError(f"db_path has the unsupported scheme {scheme}://; use {_FORMS}")
    match = _DSN.fullmatch(url)
    if match is None:
        _reject("remove what stands before the scheme; percent-encode @ : / ? in user and password")
    return _postgres_location("asyncpg" if scheme.endswith("asyncpg") else "psycopg", match)


def _postgres_location(driver: Driver, parts: re.Match[str]) -> PostgresLocation:
    username, password, authority, database, query = parts.groups()
    pairs = parse_qsl(query or "", keep_blank_values=True)
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    endpoints = _endpoints(authority, values.pop("host", []), values.pop("port", []))
    if not endpoints or not database:
        _reject("host and database must both be given")
    settings, arguments = _parameters(driver, values)
    hidden = [(key, "***" if "password" in key.lower() else value) for key, value in pairs]
    login = "" if username is None else username + ("@" if password is None else ":***@")
    suffix = f"?{urlencode(hidden, quote_via=quote, safe='/:,=*')}" if hidden else ""
    return PostgresLocation(
        driver=driver,
        endpoints=endpoints,
        database=unquote(database),
        masked=f"postgresql+{driver}://{login}{authority}/{database}{suffix}",
        username=username and unquote(username),
        password=password and unquote(password),
        settings=settings,
        arguments=arguments,
    )


def _endpoints(authority: str, hosts: list[str], ports: list[str]) -> tuple[Endpoint, ...]:
    """Return the servers of a URL; those in its query replace the one before the database."""
    named = [host for value in hosts for host in value.split(",") if host]
    texts = [f"[{name}]" if name[0] not in "/[" and name.count(":") > 1 else name for name in named]
    numbers = [port for value in ports for port in value.split(",")]
    if authority.startswith(":"):  # a port without a host belongs to the host of the query
        numbers = numbers or [authority[1:]]
    elif authority and not texts:
        texts = [unquote(text) for text in authority.split(",")]
    endpoints = [_endpoint(text) for text in texts]
    if len(numbers) == 1:
        numbers *= len(endpoints)
    if not numbers:
        return tuple(endpoints)
    if len(numbers) != len(endpoints):
        _reject("give one port, or as many ports as hosts")
    return tuple(
        Endpoint(endpoint.host, _port(number) or endpoint.port)
        for endpoint, number in zip(endpoints, numbers, strict=True)
    )


def _endpoint(text: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        _reject("a host is a name, an address, [an IPv6 address] or a socket directory")
    address, host, port = match.groups()
    return Endpoint(address or host, _port(port))


def _port(text: str | None) -> int | None:
    return _number("the port", text, 1, 65535) if text else None


def _parameters(
    driver: Driver, query: dict[str, list[str]]
) -> tuple[dict[str, str], dict[str, str | int]]:
    """Return run-time parameters and driver arguments of the query part."""
    if any(len(values) > 1 for values in query.values()):
        _reject("a parameter is given twice")
    given = {key: values[0] for key, values in query.items()}
    try:
        settings = parse_options(given.pop("options", ""))
    except ValueError as error:
        _reject(f"options {error}")
    if "application_name" in given:
        settings["application_name"] = given.pop("application_name")
    if "default_transaction_read_only" in settings:
        _reject("default_transaction_read_only is controlled by read_only")
    arguments: dict[str, str | int] = {**given}
    for key, least in (("connect_timeout", 1), ("prepared_statement_cache_size", 0)):
        if key in given:
            arguments[key] = _number(key, given[key], least)
    if driver == "psycopg":
        unknown = given.keys() & {"prepared_statement_cache_size"}
    else:
        unknown = given.keys() - _ASYNCPG_NAMES.keys()
        arguments = {_ASYNCPG_NAMES.get(key, key): value for key, value in arguments.items()}
    if unknown:
        names = ", ".join(sorted(key if key.isidentifier() else "?" for key in unknown))
        _reject(f"{driver} does not support the parameter(s) {names}")
    return settings, arguments


def _number(name: str, text: str, least: int, most: int = 2**31 - 1) -> int:
    # int() alone would quote a misplaced password in its error.
    if not (text.isascii() and text.isdecimal() and len(text) < 11 and least <= int(text) <= most):
        _reject(f"{name} must be a number from {least} to {most}")
    return int(text)


def _reject(problem: str) -> NoReturn:
    raise ValueError(f"invalid database URL: {problem}")


def parse_options(text: str) -> dict[str, str]:
    """Return the run-time parameters of `-c name=value …`, the form that libpq takes.

    A backslash protects the next character. Names are folded as the server folds them.
    """
    words = re.findall(r"(?:\\.|[^\\\s])+", text, re.DOTALL)
    settings: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word == "-c" and words:
            word += words.pop(0)
        pair = re.fullmatch(r"-c([\w.-]+)=(.*)", word, re.DOTALL)
        if pair is None:
            raise ValueError("must consist of -c name=value")
        name, value = pair.groups()
        settings[name.lower().replace("-", "_")] = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
    return settings


def render_options(settings: Mapping[str, str]) -> str:
    """Return the text that `parse_options` reads as `settings`."""
    return " ".join(
        f"-c {name}=" + re.sub(r"([\\\s])", r"\\\1", value) for name, value in settings.items()
    )
