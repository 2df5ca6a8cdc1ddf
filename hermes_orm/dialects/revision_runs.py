"""Running revisions: the schema number follows each of them, full-text search the last."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from hermes_orm.dialects.migrating import connection_of, frozen_ddl
from hermes_orm.dialects.revising import Schema

_VERSION = sa.table("schema_version", sa.column("version", sa.Integer()))


def upgrade(connection: Connection, revision: str, **attributes: bool) -> None:
    """Do what `alembic.command.upgrade` does, with revisions that are read once per process."""
    scripts = _scripts()

    def steps(current: Any, context: MigrationContext) -> Any:
        return scripts._upgrade_revs(revision, current)

    config = _config(connection, **attributes)
    with EnvironmentContext(config, scripts, fn=steps, destination_rev=revision):
        scripts.run_env()


def downgrade(connection: Connection, revision: str, **attributes: bool) -> None:
    """Do what `alembic.command.downgrade` does."""
    from alembic import command  # with the parts that compare schemas

    command.downgrade(_config(connection, **attributes), revision)


def current(connection: Connection) -> str | None:
    """Return the revision of a database, or None when it bears no stamp."""
    context = MigrationContext.configure(connection, opts=CONTEXT_OPTIONS)
    return context.get_current_revision()


def script_folder() -> Path:
    """Return the folder of the revisions: in the package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "_alembic"
    return installed if installed.exists() else package.with_name("alembic")


@cache
def _scripts() -> ScriptDirectory:
    """Return the revisions; to read all of them takes as long as to run them on a small file."""
    return ScriptDirectory(str(script_folder()))


def _config(connection: Connection, **attributes: bool) -> Config:
    """Return the configuration of a command that runs on a connection."""
    config = Config(attributes={"connection": connection, **attributes})
    config.set_main_option("script_location", str(script_folder()).replace("%", "%%"))
    return config


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


def replay_schema(connection: Connection, revision: str) -> None:
    """Add what a database of `revision` lacks of the schema of 0001 to `revision`.

    No data step runs, nothing of the caller's is dropped, and full-text search is left alone: its
    triggers must be absent where tables are rebuilt.
    """
    schema = Schema(MigrationContext.configure(connection, opts=CONTEXT_OPTIONS))
    for found in reversed(list(_scripts().iterate_revisions(revision, "base"))):
        found.module.schema(schema)


def follow_revision(*, ctx: MigrationContext, step: MigrationInfo, **_: Any) -> None:
    """Keep the number that other programs read equal to the revision, in its transaction."""
    for revision in step.destination_revision_ids:
        ctx.execute(_VERSION.update().values(version=int(revision[:4])))


CONTEXT_OPTIONS: dict[str, Any] = {
    "version_table": "hermes_alembic_version",  # a host keeps its own `alembic_version`
    "transactional_ddl": True,
    "on_version_apply": follow_revision,
}
"""How Alembic runs, whoever starts it."""
