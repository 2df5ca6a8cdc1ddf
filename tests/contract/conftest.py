"""Fixtures of the contract tests."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Dialect

from hermes_orm.dialects.prepared import CompiledText, Prepared
from tests.contract.index_states import Index
from tests.contract.stories import Story
from tests.raw import Raw

Sent = Callable[[], int]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """`sent()`: the number of statements since it was last asked."""
    statements: list[Prepared] = []
    compiled = Prepared.compiled

    def counted(self: Prepared, dialect: Dialect) -> CompiledText:
        statements.append(self)
        return compiled(self, dialect)

    def number() -> int:
        found = len(statements)
        statements.clear()
        return found

    monkeypatch.setattr(Prepared, "compiled", counted)
    return number


@pytest.fixture
def story(raw: Raw) -> Story:
    """The store's rows at chosen times."""
    return Story(raw)


@pytest.fixture
def index(raw: Raw) -> Index:
    """The store's search index."""
    return Index(raw)


@pytest.fixture
async def session(db: Any) -> str:
    """The id of a new session."""
    session_id: str = await db.create_session("s", "cli")
    return session_id
