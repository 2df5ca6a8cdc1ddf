"""Runs the revisions on either database, or writes them as a script (`--sql`).

Options: `-x url=…` (else HERMES_DATABASE_URL, else `sqlalchemy.url` of alembic.ini) and
`-x lock_wait=SECONDS`. Code that has a connection hands it over in `config.attributes`.
"""

import asyncio
import logging.config
import os

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection

from hermes_orm import migrations
from hermes_orm.dialects.revision_runs import CONTEXT_OPTIONS, run_revisions

config = context.config
options = context.get_x_argument(as_dictionary=True)

QUESTIONS = {"current", "history", "show", "check"}
"""Commands of Alembic that change nothing."""


def database_url() -> str:
    """Return the URL that was given, the nearest one first."""
    ini = config.get_main_option("sqlalchemy.url")
    url = options.get("url") or os.environ.get("HERMES_DATABASE_URL") or ini
    if not url:
        raise CommandError(
            "no database is named: give -x url=…, or set HERMES_DATABASE_URL, "
            "or sqlalchemy.url in alembic.ini"
        )
    return url


def migrate(connection: Connection) -> None:
    """Run the revisions on a connection: all of them, or none."""
    context.configure(connection=connection, **CONTEXT_OPTIONS)
    with context.begin_transaction():
        run_revisions(context.get_context())


def show(connection: Connection) -> None:
    """Answer a question about the database."""
    context.configure(connection=connection, **CONTEXT_OPTIONS)
    context.run_migrations()


def write_script(dialect_name: str) -> None:
    """Write the revisions as SQL to standard output."""
    context.configure(dialect_name=dialect_name, literal_binds=True, **CONTEXT_OPTIONS)
    with context.begin_transaction():
        run_revisions(context.get_context())


async def on_database() -> None:
    """Run the command on a connection of its own, under the migration lock if it changes anything.

    A database of the existing stores is adopted before, but not to answer a question.
    """
    command = getattr(config.cmd_opts, "cmd", [None])[0]
    if getattr(command, "__name__", None) in QUESTIONS:
        await migrations.read(database_url(), show)
    else:
        lock_wait = float(options.get("lock_wait", migrations.LOCK_WAIT_SECONDS))
        await migrations.run(database_url(), migrate, lock_wait=lock_wait)


def main() -> None:
    """Choose between a script, a connection of the caller's, and one of our own."""
    connection = config.attributes.get("connection")
    if context.is_offline_mode():
        write_script(migrations.dialect_name(database_url()))
    elif connection is not None:
        migrate(connection)
    else:
        if config.config_file_name and config.file_config.has_section("loggers"):
            logging.config.fileConfig(config.config_file_name, disable_existing_loggers=False)
        asyncio.run(on_database())


main()
