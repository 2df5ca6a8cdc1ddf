"""Running revisions: the schema number follows each of them, full-text search the last."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from hermes_orm.dialects.migrating import connection_of, frozen_ddl
from hermes_orm.dialects.revising import Schema

_VERSION = sa.table("schema_version", sa.column("version", sa.Integer()))


def run_revisions(context: MigrationContext) -> None:
    """Run the revisions that the command asks for; then bring the search objects to the last one.

    A revision that says `search_layout` begins a layout. With the attribute `defer_search` of the
    configuration the index stays empty, and the settings announce a rebuild in steps.
    """
    environment = context.environment_context
    assert environment is not None
    environment.run_migrations()
    if "search_found" not in context.opts:  # no revision has run
        return
    revision = (
        environment.get_revision_argument() if context.as_sql else context.get_current_revision()
    )
    frozen_ddl(context).establish_search(
        connection_of(context),
        search_layout(environment.script, revision),
        context.opts["search_found"],
        deferred=bool(environment.config.attributes.get("defer_search")),
    )


def search_layout(script: ScriptDirectory, revision: Any) -> str | None:
    """Return the name of the full-text layout at a revision; None below the first."""
    if not revision:
        return None
    for found in script.iterate_revisions(revision, "base"):
        layout: str | None = getattr(found.module, "search_layout", None)
        if layout is not None:
            return layout
    return None


def replay_schema(
    connection: Connection, script: ScriptDirectory, revision: str, options: dict[str, Any]
) -> None:
    """Add what a database of `revision` lacks of the schema of 0001 to `revision`.

    No data step runs, nothing of the caller's is dropped, and full-text search is left alone: its
    triggers must be absent where tables are rebuilt.
    """
    schema = Schema(MigrationContext.configure(connection, opts=options))
    for found in reversed(list(script.iterate_revisions(revision, "base"))):
        found.module.schema(schema)


def follow_revision(*, ctx: MigrationContext, step: MigrationInfo, **_: Any) -> None:
    """Keep the number that other programs read equal to the revision, in its transaction."""
    for revision in step.destination_revision_ids:
        ctx.execute(_VERSION.update().values(version=int(revision[:4])))
