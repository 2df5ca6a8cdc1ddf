"""What is found does not depend on the locale of the database."""

import os
from collections.abc import Iterator

import pytest

from hermes_orm import SessionDB
from tests.contract.finding import found, found_set, tell_corpus
from tests.postgres_server import PostgresServer
from tests.raw import Raw
from tests.search.corpora import CORPUS


@pytest.fixture
def location(postgres_server: PostgresServer) -> Iterator[str]:
    """DSN of an empty database that folds and orders text unlike the C locale of the others."""
    name = f"{postgres_server.prefix}_{os.getpid()}_locale"
    postgres_server.create_foreign(name)
    yield postgres_server.location(name, "postgresql+asyncpg")
    postgres_server.drop(name)


async def test_the_worked_examples_find_the_same(
    db: SessionDB, raw: Raw, postgres_server: PostgresServer
) -> None:
    ((ctype,),) = await raw.fetch(
        "SELECT datctype FROM pg_database WHERE datname = current_database()"
    )
    assert ctype != "C"
    await tell_corpus(db, raw)
    for example in CORPUS["queries"]:
        arguments = example["arguments"]
        has_order = arguments.get("sort", "").strip().lower() in ("newest", "oldest")
        find = found if has_order else found_set
        assert await find(db, example["query"], **arguments) == example["hits"], example
