"""How an existing database enters the line of our revisions, and what is reported about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import Connection

HASTY = "hermes_hasty"
"""Set in the `info` of a connection to a large file that somebody waits for."""

SearchState = Literal["kept", "rebuilt", "queued", "unavailable"]


@dataclass(frozen=True)
class AdoptionReport:
    """What an existing database was, what was repaired, and what was kept as it is."""

    version: int | None
    """The number that the database bore; None when it had none that can be used."""
    shape: int
    """The highest version whose objects were all there."""
    start: str
    """The revision at which the upgrade began; the newest one when nothing had to be done."""
    holes: tuple[str, ...] = ()
    """Tables, columns and indexes that were added although they belong to that revision."""
    repaired_rows: Mapping[str, int] = field(default_factory=dict)
    """How many rows each repair concerned."""
    violations: tuple[str, ...] = ()
    """Rows that refer to a missing row, counted per relation; they are kept."""
    undecodable: Mapping[str, int] = field(default_factory=dict)
    """How many values of a JSON column are no JSON; they are kept."""
    search: SearchState = "kept"
    """What became of the search index; `queued`: `fts_rebuild_step` fills it."""
    backup: str | None = None
    """Path of the copy that was made before the first change."""


@dataclass(frozen=True)
class Adoption:
    """How a migration treats a database that is not, or no longer, in our line of revisions."""

    replay: Callable[[Connection, str], None]
    """Creates what is missing of the schema of a revision, without its data steps."""
    report: Callable[[AdoptionReport], None] = lambda report: None
    """Is told what was done, after the commit."""
    backup: bool = True
    """Whether a file is copied before its first change."""
    guesses: bool = True
    """Whether a file that does not tell its version is taken for what it holds, else refused."""
    is_hasty: bool = False
    """Whether the store that opens a large file gives messages their ids and indexes later."""
    covers_stamped: bool = False
    """Whether a file with an older revision of ours is copied and verified as well."""
