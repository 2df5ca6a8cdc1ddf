"""How the engine of a PostgreSQL store is created: URL, pool, driver arguments, start-up values."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import URL

from hermes_orm.dialects.postgresql.settings import (
    READ_ONLY,
    SCHEMA_NAME,
    PostgresSettings,
    read_settings,
)
from hermes_orm.location import Driver, PostgresLocation, parse_options, render_options

logger = logging.getLogger("hermes_orm.postgresql")

STATEMENT_CACHE_SIZE: Final = 1000
"""Statements that a connection keeps prepared; the drivers' 100 are fewer than the store has."""

DEFAULT_PORT: Final = 5432
_STARTUP: Final = {"jit": "off", "lock_timeout": "1000", "application_name": "hermes_orm"}


@dataclass(frozen=True)
class EngineOptions:
    """Everything `create_async_engine` takes, and what the store does by itself.

    `schema` is the schema that the connections work in, None for the server's choice. With
    `pooler` nothing but the user's own values is sent at start-up.
    """

    location: PostgresLocation
    driver: Driver
    url: URL
    kwargs: dict[str, Any] = field(repr=False)
    ping: bool
    pooler: bool
    schema: str | None
    profile: str | None


def engine_options(
    location: PostgresLocation,
    section: object = None,
    *,
    read_only: bool = False,
    startup: Mapping[str, str] = MappingProxyType({}),
) -> EngineOptions:
    """Combine a location with the section `database.postgres`; raise ValueError if they don't fit.

    Values of the section win over those of the URL, and both over our own, which `startup`
    replaces.
    """
    settings = read_settings(section, location.driver)
    if settings.pool_size == 0 or settings.max_overflow == -1:
        logger.warning(
            "database.postgres: pool_size 0 or max_overflow -1 lets this store open any number of"
            " connections"
        )
    arguments, requested = _requested(location, settings)
    schema = _schema(settings.schema_name, requested.get("search_path"))
    parameters = _startup(
        {**startup, **requested}, schema, pooler=settings.pooler, read_only=read_only
    )
    spell = _asyncpg_arguments if location.driver == "asyncpg" else _psycopg_arguments
    return EngineOptions(
        location=location,
        driver=location.driver,
        url=_url(location),
        kwargs={
            "pool_size": settings.pool_size,
            "max_overflow": settings.max_overflow,
            "pool_timeout": settings.pool_timeout,
            "pool_recycle": settings.pool_recycle,
            "pool_use_lifo": settings.pool_use_lifo,
            "pool_pre_ping": False,  # the store pings, and idle connections only
            "hide_parameters": True,
            "connect_args": spell(arguments, parameters, pooler=settings.pooler),
        },
        ping=settings.pool_pre_ping,
        pooler=settings.pooler,
        schema=schema,
        profile=settings.profile,
    )


def _requested(
    location: PostgresLocation, settings: PostgresSettings[Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the user asks for: arguments of the driver, and run-time parameters."""
    own = dict(settings.connect_args or {})
    requested = {
        **location.settings,
        **parse_options(own.pop("options", "")),
        **{name.lower(): value for name, value in own.pop("server_settings", {}).items()},
    }
    if "application_name" in own:
        requested["application_name"] = own.pop("application_name")
    if own.get("command_timeout", 0) is None:
        del own["command_timeout"]
    return {**location.arguments, **own}, requested


def _schema(configured: str | None, search_path: str | None) -> str | None:
    if search_path is None:
        return configured
    named = search_path.strip().lower()  # as the server folds it
    if configured not in (None, named):
        raise ValueError("database.postgres.schema and the requested search_path differ")
    return named if re.fullmatch(SCHEMA_NAME, named) else None


def _startup(
    requested: Mapping[str, str], schema: str | None, *, pooler: bool, read_only: bool
) -> dict[str, str]:
    """Return the run-time parameters that a connection starts with."""
    if pooler:
        values = dict(requested)
        if schema is not None:  # the role carries it, and opening the store checks it
            values.pop("search_path", None)
        return values
    values = {**_STARTUP, **requested}
    if schema is not None:
        values["search_path"] = schema
    if read_only:
        values[READ_ONLY] = "on"
    return values


def _asyncpg_arguments(
    arguments: dict[str, Any], startup: dict[str, str], *, pooler: bool
) -> dict[str, Any]:
    caches = {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
    if pooler:
        # A name would stay at the server: the next transaction, which has to close it, may be on
        # another connection.
        spelt = {**arguments, **caches, "prepared_statement_name_func": str}
    else:
        kept = arguments.get("statement_cache_size", STATEMENT_CACHE_SIZE)
        # 0: however long; a list with many filters exceeds asyncpg's 15 KiB.
        spelt = {**dict.fromkeys(caches, kept), "max_cacheable_statement_size": 0, **arguments}
    return {**spelt, "server_settings": startup} if startup else spelt


def _psycopg_arguments(
    arguments: dict[str, Any], startup: dict[str, str], *, pooler: bool
) -> dict[str, Any]:
    spelt = {**arguments, "prepare_threshold": None} if pooler else dict(arguments)
    rest = dict(startup)
    if "application_name" in rest:
        spelt["application_name"] = rest.pop("application_name")
    return {**spelt, "options": render_options(rest)} if rest else spelt


def _url(location: PostgresLocation) -> URL:
    """Return the SQLAlchemy URL; socket directories and several hosts go into its query."""
    first, *others = location.endpoints
    is_plain = not others and not first.host.startswith("/")
    query = {}
    if not is_plain:
        query["host"] = ",".join(endpoint.host for endpoint in location.endpoints)
        if others or first.port:
            query["port"] = ",".join(
                str(endpoint.port or DEFAULT_PORT) for endpoint in location.endpoints
            )
    return URL.create(
        f"postgresql+{location.driver}",
        username=location.username,
        password=location.password,
        host=first.host if is_plain else None,
        port=first.port if is_plain else None,
        database=location.database,
        query=query,
    )
