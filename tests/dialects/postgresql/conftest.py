"""Both drivers, and no other database."""

from collections.abc import Callable

import pytest


@pytest.fixture(params=["postgresql+asyncpg", "postgresql+psycopg"])
def location(request: pytest.FixtureRequest, make_location: Callable[..., str]) -> str:
    """DSN of a fresh store."""
    return make_location(request.param)
