"""An adoption of the existing PostgreSQL store that is killed is completed by the next opening."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.historic.stores import OldStore
from tests.migrations.catalogue import differences
from tests.migrations.killing import Point, copied, killed, state, upgrade
from tests.migrations.revisions import Database

ADOPTION: list[Point] = [("hermes_orm.dialects.postgresql.migrating", "adopt", 0)]
"""Just before its commit; before that, after so many statements."""
REVISIONS: list[Point] = [
    *((f"{number:04}", "schema", 0) for number in range(26, 32)),
    ("0031", "give_uids", 1),
    ("0031", "describe", 1),
    ("hermes_orm.dialects.revision_runs", "run_revisions", 0),
]
"""The adoption is committed: the next run goes on with the revisions."""

STATEMENTS = 104
"""What `adopt` sends to change the fixture."""


def after(*statements: int) -> list[Point]:
    (point,) = ADOPTION
    return [(*point[:2], number) for number in statements]


@pytest.mark.parametrize(
    ("driver", "points"),
    [
        pytest.param("postgresql+psycopg", [*after(40), *REVISIONS[-3:-2]], id="psycopg"),
        *(
            pytest.param(
                f"postgresql+{driver}",
                [*after(*range(1, STATEMENTS, 3)), *ADOPTION, *REVISIONS],
                marks=pytest.mark.full,
                id=f"{driver}, all",
            )
            for driver in ("asyncpg", "psycopg")
        ),
    ],
)
async def test_killed_adoption_is_completed_by_the_next(
    driver: str,
    points: list[Point],
    make_old: Callable[..., OldStore],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    old = make_old(driver)
    before, original = old.dump(), Database(old.location)
    async with copied(original, request, tmp_path) as database:
        await upgrade(database.location, tmp_path)
        expected = await state(database), await database.shape()
    for point in points:
        async with copied(original, request, tmp_path) as database:
            await killed(database, point, tmp_path)
            if point not in REVISIONS:
                assert OldStore(database.location, old.sidecar).dump() == before, point
            await upgrade(database.location, tmp_path)
            rows, shape = expected
            assert await state(database) == rows, point
            assert differences(await database.shape(), shape) == [], point
