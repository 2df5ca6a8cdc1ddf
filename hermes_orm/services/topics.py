"""Reading Telegram topics: an older form of their tables is brought up to date on the way."""

from __future__ import annotations

import functools
import logging
import sqlite3
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from hermes_orm.database import Database, Scope, Transaction
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.gateway.topic_tables import (
    OutdatedTopicTablesError,
    TopicTableRepository,
)

P = ParamSpec("P")
R = TypeVar("R")
TopicsT = TypeVar("TopicsT", bound=TopicTableRepository)

logger = logging.getLogger(__name__)


def answer(
    method: Callable[Concatenate[TopicsT, P], R],
    *,
    scope: Scope = "statement",
) -> Callable[Concatenate[Database, P], Coroutine[Any, Any, R]]:
    """Return a method that reads topics as a service.

    Tables of an older form are migrated once; where that cannot be, they read as empty.
    """

    repository = Repository.owner_of(method)

    @functools.wraps(method)
    async def operation(database: Database, /, *args: P.args, **kwargs: P.kwargs) -> R:
        def read(tx: Transaction, *, outdated_is_absent: bool) -> R:
            topics: TopicsT = repository(tx)
            topics.outdated_is_absent = outdated_is_absent
            return method(topics, *args, **kwargs)

        def attempt(tx: Transaction) -> tuple[R] | None:
            try:
                return (read(tx, outdated_is_absent=False),)
            except OutdatedTopicTablesError:
                return None

        if found := await database.read(attempt, scope=scope):
            return found[0]
        await _migrate(database)
        return await database.read(functools.partial(read, outdated_is_absent=True), scope=scope)

    return operation


async def _migrate(database: Database) -> None:
    if database.read_only:
        return
    try:
        await database.write(lambda tx: TopicTableRepository(tx).apply_telegram_topic_migration())
    except (sqlite3.Error, SQLAlchemyError) as error:
        logger.warning("the tables of Telegram topics were not migrated: %s", error)
