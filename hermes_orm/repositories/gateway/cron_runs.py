"""Runs of scheduled jobs: sessions of source `cron` with the job's id in theirs."""

from __future__ import annotations

from typing import Final

from hermes_orm.codec import plain_text
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.listing.listing import ListingRepository, page_of
from hermes_orm.repositories.sessions.filters import FilterBuilder
from hermes_orm.rows import RichSessionRow
from hermes_orm.session_text import lookup_key

SOURCE: Final = "cron"


class CronRunRepository(Repository):
    """Rows of `sessions` as runs of jobs."""

    def list_cron_job_runs(
        self, job_id: str, limit: int | None = 20, offset: int | None = 0
    ) -> list[RichSessionRow]:
        """Return the sessions with an id that begins with `cron_<job_id>_`, latest started first.

        Archived and hidden ones are among them. No or a negative limit: all of them.
        """
        prefix, wanted = lookup_key(f"cron_{plain_text(job_id)}_"), FilterBuilder()
        wanted.text("source", SOURCE)
        if prefix is None:
            wanted.add("nothing")
        else:
            following = chr(ord(prefix[-1]) + 1)
            wanted.add("id_range", first_id=prefix, beyond_id=prefix[:-1] + following)
        page = page_of(
            wanted.filter(),
            limit=limit,
            offset=offset,
            is_compact=False,
            is_projected=False,
            includes_pinned=False,
        )
        return ListingRepository(self.tx).by_start(page)
