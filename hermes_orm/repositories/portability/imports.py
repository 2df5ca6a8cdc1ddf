"""Sessions with their transcripts, stored with a few statements for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sqlalchemy import ClauseElement, bindparam, insert, select

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, has_key, has_key_of, text_list
from hermes_orm.dialects.prepared import Params
from hermes_orm.models import Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.portability.entries import Entry
from hermes_orm.repositories.portability.exports import portions
from hermes_orm.repositories.portability.rows import ImportResult, RejectedSession
from hermes_orm.repositories.sessions.prompts import PromptRepository
from hermes_orm.session_text import lookup_key

_GIVEN: Final = has_key_of(Session.id, bound_texts("ids"))

KNOWN = Prepared(select(Session.id).where(_GIVEN))
TITLES = Prepared(select(Session.title).where(has_key_of(Session.title, bound_texts("titles"))))


def _insert() -> ClauseElement:
    from hermes_orm.repositories.portability.fields import SessionFields  # imports pydantic

    names = SessionFields.model_fields.keys() - {"system_prompt"} | {
        "id",
        "created_source",
        "model_config",
        "system_prompt_hash",
        "message_count",
        "tool_call_count",
    }
    return insert(Session).values({name: bindparam(name) for name in sorted(names)})


def _ancestors() -> ClauseElement:
    """Select the sessions `:ids` and all that they descend from."""
    found = select(Session.id, Session.parent_session_id).where(_GIVEN).cte(recursive=True)
    above = select(Session.id, Session.parent_session_id).join_from(
        found, Session, has_key(Session.id, found.c.parent_session_id)
    )
    found = found.union(above)
    return select(found.c.id, found.c.parent_session_id)


INSERT = Prepared(_insert)
ANCESTORS = Prepared(_ancestors)


class ImportRepository(Repository):
    """Rows of `sessions` and `messages` that come from elsewhere."""

    def known(self, entries: Iterable[Entry]) -> set[str]:
        """Return the ids of the entries that are in the store."""
        rows = self.tx.all(KNOWN, {"ids": text_list(entry.id for entry in entries)})
        return {row[0] for row in rows}

    def rejected(self, entries: Iterable[Entry], known: set[str]) -> list[RejectedSession]:
        """Return the new entries whose title another session has, stored or in front of them."""
        titled = [entry for entry in entries if entry.row["title"] and entry.id not in known]
        texts = text_list(entry.row["title"] for entry in titled)
        taken = {row[0] for row in self.tx.all(TITLES, {"titles": texts})} if titled else set()
        rejected: list[RejectedSession] = []
        for entry in titled:
            if entry.row["title"] in taken:
                error = "title is already in use"
                rejected.append({"index": entry.index, "error": error, "session_id": entry.id})
            taken.add(entry.row["title"])
        return rejected

    def import_sessions(
        self, entries: Sequence[Entry], messages: Mapping[str, Sequence[Params]]
    ) -> ImportResult:
        """Store the sessions that are new, with their encoded messages; none if one is rejected."""
        known = self.known(entries)
        if rejected := self.rejected(entries, known):
            return rejection(rejected)
        new = [entry for entry in entries if entry.id not in known]
        parents, detached = self._parents(new)
        self._insert(new, parents, messages)
        return {
            "ok": True,
            "imported": len(new),
            "skipped": len(known),
            "detached": detached,
            "errors": [],
            "imported_ids": [entry.id for entry in new],
            "skipped_ids": [entry.id for entry in entries if entry.id in known],
        }

    def _parents(self, new: Sequence[Entry]) -> tuple[dict[str, str | None], int]:
        """Return who is whose parent, and how many sessions lose theirs: unknown, or in a ring."""
        given = {entry.id: entry.parent for entry in new}
        beyond = set(filter(None, map(lookup_key, given.values()))) - given.keys()
        rows = self.tx.all(ANCESTORS, {"ids": text_list(sorted(beyond))}) if beyond else ()
        parents: dict[str, str | None] = {row[0]: row[1] for row in rows} | given
        detached = 0
        for child, parent in given.items():
            if parent is not None and (parent not in parents or _descends(child, parents)):
                parents[child] = None
                detached += 1
        return parents, detached

    def _insert(
        self,
        new: Sequence[Entry],
        parents: Mapping[str, str | None],
        messages: Mapping[str, Sequence[Params]],
    ) -> None:
        prompts = {e.row["system_prompt_hash"]: e.prompt for e in new if e.prompt is not None}
        PromptRepository(self.tx).keep_all(prompts)
        rows = {
            entry.id: {
                **entry.row,
                "parent_session_id": parents[entry.id],
                "message_count": len(transcript := messages.get(entry.id, ())),
                "tool_call_count": sum(row["tool_call_count"] for row in transcript),
            }
            for entry in new
        }
        if rows:
            self.tx.run_many(INSERT, _parents_first(rows))
        filled = (messages[key] for key in rows if key in messages)
        for portion in portions((len(transcript), transcript) for transcript in filled):
            together = [row for transcript in portion for row in transcript]
            self.tx.dialect.transcript.fill(self.tx, together)


def rejection(errors: Iterable[RejectedSession]) -> ImportResult:
    """Return the result of an import of which nothing is stored."""
    ordered = sorted(errors, key=lambda error: error["index"])
    return {"ok": False, "imported": 0, "skipped": 0, "detached": 0, "errors": ordered}


def _descends(child: str, parents: Mapping[str, str | None]) -> bool:
    """Whether following parents leads from a session back to it."""
    seen: set[str] = set()
    step = parents[child]
    while step is not None and step not in seen and step != child:
        seen.add(step)
        step = parents.get(step)
    return step == child


def _parents_first(rows: Mapping[str, Params]) -> list[Params]:
    """Return the rows in an order in which each comes after the one that it refers to."""
    ordered: dict[str, Params] = {}
    for key in rows:
        path = []
        step = key
        while step in rows and step not in ordered:
            path.append(step)
            step = rows[step]["parent_session_id"]
        ordered.update((step, rows[step]) for step in reversed(path))
    return list(ordered.values())
