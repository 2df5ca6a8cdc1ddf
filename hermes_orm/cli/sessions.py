"""`hermes-orm sessions …`: what an operator does with sessions."""

from typing import Final

import typer

from hermes_orm.cli.browsing import list_sessions, search, show_session
from hermes_orm.cli.export import export
from hermes_orm.cli.importing import import_sessions
from hermes_orm.cli.recover import recover
from hermes_orm.cli.retention import archive, delete, prune

HELP: Final = (
    "List, read, search, move and delete sessions.\n\n"
    "Exit codes: 0 done; 1 failed, or not confirmed (the reason is on standard error); 2 wrong"
    " arguments; 3 done, but something was left out, which is named on standard error."
)

app = typer.Typer(help=HELP, no_args_is_help=True)
app.command("list")(list_sessions)
app.command("show")(show_session)
app.command()(search)
app.command()(export)
app.command("import")(import_sessions)
app.command()(prune)
app.command()(archive)
app.command()(delete)
app.command()(recover)
