"""What a database is and whether it is sound: asked for by operators, changed by nobody."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import Connection, func, inspect, select

from hermes_orm.dialects.migrating import read_with
from hermes_orm.dialects.recency import recency_definition
from hermes_orm.errors import SchemaError
from hermes_orm.location import Location, SqliteLocation
from hermes_orm.models import SessionRecency

Kind = Literal["empty", "current", "older", "refused"]
Step = Callable[[str], None]
"""Is told what begins now."""


@dataclass(frozen=True)
class Status:
    """The schema of a database, what an upgrade would do to it, and how large it is."""

    kind: Kind
    revision: str | None
    """Its revision in our own version table."""
    version: int | None
    """The number in `schema_version` that other programs read."""
    fingerprint: str
    """What it really holds."""
    upgrade: str
    """What `hermes-orm db upgrade` would do."""
    server: str
    """The database's own name and version."""
    bytes: int
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of each table; estimates of the server where counting would read them all."""
    to_be_indexed: int = 0
    """Messages that the search index does not hold yet: searches scan them."""


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    area: Literal["integrity", "references", "search", "schema", "recency"]
    text: str


def restore(connection: Connection, replay: Callable[[], None]) -> None:
    """Create what a database of the newest schema lacks; `replay` adds what revisions add."""
    _parts(connection).restore(connection, replay)


def _parts(connection: Connection) -> Any:
    """Return the module with what is inspected differently on the connection's database."""
    return importlib.import_module(f"hermes_orm.dialects.{connection.dialect.name}.inspection")


async def status_of(location: Location) -> Status:
    """Return what the database at a location is; raise OSError or a driver's error for none."""
    return await read_with(location, _describe)


async def findings_of(location: Location, step: Step) -> list[Finding]:
    """Return what is wrong with the database at a location, which must have the newest schema."""

    def action(connection: Connection) -> list[Finding]:
        return _check(connection, step)

    if isinstance(location, SqliteLocation):
        from hermes_orm.dialects.sqlite import inspection as sqlite

        return await sqlite.inspect(location, action)
    return await read_with(location, action)


def _describe(connection: Connection) -> Status:
    status: Status = _parts(connection).describe(connection)
    return status


def _check(connection: Connection, step: Step) -> list[Finding]:
    findings: list[Finding] = []
    found = _found(connection, step)
    try:
        while (finding := next(found, None)) is not None:
            findings.append(finding)
    except Exception:
        if not any(finding.area == "integrity" for finding in findings):
            raise
        # More cannot be asked of the damaged file; what is damaged was found.
    return findings


def _check_current(status: Status) -> None:
    if status.kind != "current":
        remedy = "" if status.kind == "refused" else "; run hermes-orm db upgrade"
        raise SchemaError(
            f"the schema is not current ({status.fingerprint}): only a current one is checked"
            f"{remedy}"
        )


def _found(connection: Connection, step: Step) -> Iterator[Finding]:
    from hermes_orm.dialects.drift import drift

    parts = _parts(connection)
    yield from parts.integrity(connection, step)
    _check_current(parts.describe(connection))
    yield from parts.check(connection, step)
    step("schema against the models")
    yield from (Finding("schema", difference) for difference in drift(connection))
    step("recency of sessions")
    if not inspect(connection).has_table(SessionRecency.__tablename__):
        return  # another program's file: opening a store adds it
    if differing := _differing_recency(connection):
        text = f"{differing} sessions have another recency than their messages say (--repair)"
        yield Finding("recency", text)


def _differing_recency(connection: Connection) -> int:
    """Return how many sessions are listed at another time than the definition says."""
    wanted = recency_definition().subquery()
    stored = SessionRecency
    differing = (
        select(func.count())
        .select_from(wanted)
        .outerjoin(stored, stored.session_id == wanted.c.session_id, full=True)
        .where(stored.last_active.is_distinct_from(wanted.c.last_active))
    )
    return connection.scalar(differing) or 0
