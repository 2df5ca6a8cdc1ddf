"""`hermes-orm sessions recover`."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hermes_orm.cli.failures import Exit, told_failures
from hermes_orm.cli.progress import progress


def recover(
    source: Annotated[
        Path, typer.Option("--source", metavar="FILE", help="The file; it is copied, not opened.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="The new file; it must not exist yet."),
    ] = None,
    inspect_only: Annotated[
        bool, typer.Option("--inspect-only", help="Only tell what can be read.")
    ] = False,
    work_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to copy the source. Default: beside the output."),
    ] = None,
    chunk_size: Annotated[int, typer.Option(metavar="N", help="Rows per transaction.")] = 1000,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Save what can be read, leave out the rest.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The report. Default: OUTPUT.recovery.json."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as one JSON object.")
    ] = False,
) -> None:
    """Save the sessions of a damaged SQLite file to a new one, verify it, and write a report.

    The new file is not installed: look at the report, then put it in place yourself. Exit codes: 0
    complete, or partial but verified with --allow-partial (with --inspect-only: recoverable); 1
    failed, not complete or not verified; 2 wrong arguments.
    """
    if inspect_only:
        if output is not None or allow_partial:
            raise typer.BadParameter("--inspect-only goes without --output and --allow-partial")
        with told_failures(None):
            _inspect(source, work_dir, as_json)
        return
    if output is None:
        raise typer.BadParameter("--output is missing: name a new file, or use --inspect-only")
    written = report or output.with_name(f"{output.name}.recovery.json")
    if written.exists():
        raise typer.BadParameter(f"the report {written} exists: name another with --report")
    with told_failures(None):
        found = asyncio.run(_recover(source, output, work_dir, chunk_size, allow_partial, as_json))
        asyncio.run(_write(written, found))
    _show(found, written, as_json)
    if not (found["complete"] or (allow_partial and found["verified"])):
        raise typer.Exit(Exit.FAILED)


async def _recover(
    source: Path,
    output: Path,
    work_dir: Path | None,
    chunk_size: int,
    allow_partial: bool,
    is_quiet: bool,
) -> dict[str, Any]:
    from hermes_orm.portability.recovery import recover_session_database

    with progress("recovering", is_quiet) as shown:

        def tell(table: str, done: int, total: int) -> None:
            shown.step(table)
            shown.share(done, total)

        return await recover_session_database(
            source,
            output,
            work_dir=work_dir,
            chunk_size=chunk_size,
            progress_cb=tell,
            allow_partial=allow_partial,
        )


async def _write(path: Path, report: dict[str, Any]) -> None:
    from hermes_orm.portability.recovery import write_recovery_report

    await write_recovery_report(path, report)


def _inspect(source: Path, work_dir: Path | None, as_json: bool) -> None:
    from hermes_orm.portability.recovery import inspect_session_database

    found = asyncio.run(inspect_session_database(source, work_dir=work_dir))
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        _print_tables(found["inspection"]["tables"])
        for problem in found["inspection"]["errors"]:
            typer.echo(problem)
        typer.echo("recoverable" if found["recoverable"] else "recoverable in part only")
    if not found["recoverable"]:
        raise typer.Exit(Exit.FAILED)


def _show(found: dict[str, Any], written: Path, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, default=str))
        return
    _print_tables(found["copy"])
    for what in ("orphan_cleanup", "semantic_cleanup"):
        for name, count in found[what].items():
            typer.echo(f"{name}: {count:,}")
    for problem in (*found["verification"]["errors"], *found["verification"]["warnings"]):
        typer.echo(problem)
    result = "complete" if found["complete"] else "partial" if found["partial"] else "incomplete"
    checked = "verified" if found["verified"] else "NOT verified"
    typer.echo(f"{result} and {checked}: {found['output']}; the report is {written}")


def _print_tables(tables: dict[str, Any]) -> None:
    shown = Table("table", "state", "rows", box=None, pad_edge=False)
    for name, table in tables.items():
        if table["status"] != "missing":
            rows = table.get("rows")
            shown.add_row(name, table["status"], "?" if rows is None else f"{rows:,}")
    Console(highlight=False, soft_wrap=True).print(shown)
