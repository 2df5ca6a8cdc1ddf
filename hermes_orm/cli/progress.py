"""What long commands show meanwhile, on standard error of a terminal."""

import contextlib
import logging
from collections.abc import Iterator

from rich import progress as rich_progress
from rich.console import Console

MIGRATIONS = logging.getLogger("alembic.runtime.migration")


class Progress:
    """A bar with the step that is under way."""

    def __init__(self, bar: rich_progress.Progress, title: str) -> None:
        self._bar = bar
        self._title = title
        self._task = bar.add_task(title, total=None)

    def step(self, name: str) -> None:
        """Name what begins now."""
        self._bar.update(self._task, description=f"{self._title}: {name}")

    def share(self, done: int, total: int) -> None:
        """Show how much of the whole is done."""
        self._bar.update(self._task, completed=done, total=total)

    @contextlib.contextmanager
    def revisions(self) -> Iterator[None]:
        """Show each revision that Alembic runs within the block."""
        shown = _Revisions(self)
        level = MIGRATIONS.level
        MIGRATIONS.addHandler(shown)
        MIGRATIONS.setLevel(logging.INFO)
        propagates, MIGRATIONS.propagate = MIGRATIONS.propagate, False
        try:
            yield
        finally:
            MIGRATIONS.removeHandler(shown)
            MIGRATIONS.setLevel(level)
            MIGRATIONS.propagate = propagates


class _Revisions(logging.Handler):
    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message.startswith("Running"):
            self._progress.step(message.removeprefix("Running "))


@contextlib.contextmanager
def progress(title: str, is_quiet: bool) -> Iterator[Progress]:
    """Yield a bar that vanishes at the end; nothing is shown to machines and files."""
    console = Console(stderr=True)
    columns = (
        rich_progress.SpinnerColumn(),
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TimeElapsedColumn(),
    )
    is_hidden = is_quiet or not console.is_terminal
    with rich_progress.Progress(
        *columns, console=console, transient=True, disable=is_hidden
    ) as bar:
        yield Progress(bar, title)
