"""`hermes-orm copy`."""

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from hermes_orm.cli.failures import told_failures
from hermes_orm.cli.progress import progress

if TYPE_CHECKING:
    from hermes_orm.portability.copying import CopyReport

Place = Annotated[
    str,
    typer.Argument(
        metavar="URL|FILE", help="A SQLite file, or postgresql+asyncpg://user:pass@host/db."
    ),
]


def copy(
    source: Place,
    target: Place,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for machines.")
    ] = False,
) -> None:
    """Copy a whole database, SQLite or PostgreSQL, to an empty one of either kind, and verify it.

    The source is read as of one moment and not changed. Run the same command again after an
    interruption: it goes on where it was. End all programs that use the target first, and those
    that write to the source if nothing they write may be missing.
    """
    from hermes_orm.portability.copying import copy_database

    with told_failures(source, target), progress("copy", as_json) as shown:

        def tell(what: str, done: int, total: int) -> None:
            shown.step(what)
            shown.share(done, total)

        report = asyncio.run(copy_database(source, target, progress=tell))
    if as_json:
        typer.echo(json.dumps(asdict(report), ensure_ascii=False))
    else:
        _show(report)


def _show(report: "CopyReport") -> None:
    out = Console(highlight=False, soft_wrap=True)
    table = Table("table", "rows", "sha256 of rows", box=None, pad_edge=False)
    for name, found in report.tables.items():
        if found.rows:
            table.add_row(name, f"{found.rows:,}", found.sha256[:16])
    out.print(table)
    for column, count in report.converted.items():
        out.print(f"{column}: {count:,} values as the nearest that both databases can hold")
    for column, count in report.dangling.items():
        out.print(f"{column}: {count:,} rows refer to nothing, in the source as in the copy")
    for name in report.left_out:
        out.print(f"not copied: {name}")
    how = "completed" if report.resumed else "copied"
    out.print(f"{how} and verified: {report.source} -> {report.target}")
