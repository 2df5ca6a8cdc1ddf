"""Reading what a damaged table still gives: ranges that fail are halved down to single rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_orm.dialects.sqlite.damaged import DamagedFile, errors

MOST_QUERIES: Final = 10_000
GREATEST: Final = 2**63 - 1

Range = tuple[int, int]


@dataclass
class Salvage:
    """The rows of one table of a damaged file.

    Unless it is `partial`, the first damage raises.
    """

    file: DamagedFile
    table: str
    names: Sequence[str]
    chunk_rows: int
    partial: bool
    skipped: list[Range] = field(default_factory=list)
    """Ranges of row ids that could not be read, merged; rows need not have existed there."""
    queries: int = 0

    def portions(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield row id and columns of the rows, in the order of their row ids."""
        waiting = [self._edges() if self.partial else (-GREATEST - 1, GREATEST)]
        while waiting:
            first, last = waiting.pop()
            if self.queries >= MOST_QUERIES:
                self._skip(first, last)
                continue
            self.queries += self.partial
            try:
                rows = self.file.rows(self.table, self.names, first, last, self.chunk_rows)
            except errors():
                if not self.partial:
                    raise
                if first == last:
                    self._skip(first, last)
                else:
                    middle = (first + last) // 2
                    waiting += [(middle + 1, last), (first, middle)]
                continue
            if rows:
                yield rows
            if len(rows) == self.chunk_rows and rows[-1][0] < last:
                waiting.append((rows[-1][0] + 1, last))
                self.queries -= self.partial  # a portion that succeeds costs nothing

    def _skip(self, first: int, last: int) -> None:
        if self.skipped and self.skipped[-1][1] >= first - 1:
            first = self.skipped.pop()[0]
        self.skipped.append((first, last))

    def _edges(self) -> Range:
        """Return a range that holds all rows that can be reached."""
        first = self.file.edge(self.table, "min")
        last = self.file.edge(self.table, "max")
        if last is None and self.table == "messages":
            last = self.file.last_message_id()
        if last is None:
            last = self._probed_last()
        return min(first or 0, 1), last

    def _probed_last(self) -> int:
        """Return a row id beyond which nothing was found, or could be, by doubling."""
        probe, reached = 1, 1
        while probe < 2**40:
            found = self.file.has_row_from(self.table, probe)
            if found:
                reached = probe
            elif found is False:
                return probe
            probe *= 2
        # The last page is unreadable, however far it goes: one doubling more than rows were seen.
        return 2 * reached
