"""Running commands within the test's process."""

import json
from collections.abc import Sequence
from typing import Any

from typer.testing import CliRunner

from hermes_orm.cli import app


def run(*arguments: str, code: int = 0, answer: str | bytes | None = None) -> str:
    """Run a command; return what it printed, on standard error when it failed."""
    done = _done(arguments, code, answer)
    return str(done.stderr if code in (1, 2) else done.stdout)


def result(*arguments: str, code: int = 0) -> dict[str, Any]:
    """Run a command with --json; return its object."""
    shown: dict[str, Any] = json.loads(_done((*arguments, "--json"), code, None).stdout)
    return shown


def _done(arguments: Sequence[str], code: int, answer: str | bytes | None) -> Any:
    done = CliRunner().invoke(app, arguments, input=answer)
    assert done.exit_code == code, (done.output, done.exception)
    return done
