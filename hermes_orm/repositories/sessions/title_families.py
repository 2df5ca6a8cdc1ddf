"""Families of titles: `Plan`, `Plan #2`, `Plan #3` are the segments of one conversation."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Integer,
    Subquery,
    and_,
    bindparam,
    func,
    or_,
    select,
)

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import ascii_lower, bound_texts, text_list
from hermes_orm.dialects.prepared import Params
from hermes_orm.models import Session
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.session_text import MAX_TITLE_LENGTH, fold_ascii, lookup_key

_DIGITS: Final = "0123456789"
_NUMBER: Final = re.compile(r" #[0-9]+\Z")
_LAST: Final = "\U0010ffff"
"""Sorts behind every character of a title."""

_MOST_STARTS: Final = 64
_LONGEST_START: Final = 32

_TITLE: Final = bindparam("title", type_=TEXT)
_LENGTH: Final = bindparam("stem_length", type_=Integer())
_REST: Final = func.substr(Session.title, _LENGTH + 1)
_IS_NUMBERED: Final = and_(_REST != "", func.ltrim(_REST, _DIGITS) == "")


def _follows(start: ColumnElement[str]) -> ColumnElement[bool]:
    return and_(Session.title >= start, Session.title < start + _LAST)


def _relatives(*conditions: ColumnElement[bool]) -> Subquery:
    """Select an `id` for each of the bound beginnings: of the latest session that meets them.

    Its title begins with the stem, in upper or lower case; NULL where there is none. One look-up
    for each beginning, since PostgreSQL would read all sessions for a join.
    """
    start = bound_texts("starts").subquery()
    latest = (
        select(Session.id)
        .where(
            _follows(start.c.value),
            ascii_lower(func.substr(Session.title, 1, _LENGTH))
            == bindparam("folded_stem", type_=TEXT),
            *conditions,
        )
        .order_by(Session.started_at.desc(), Session.id.desc())
        .limit(1)
        .correlate(start)
    )
    return select(latest.scalar_subquery().label("id")).select_from(start).subquery()


def _resolve() -> ClauseElement:
    found = _relatives(_IS_NUMBERED)
    started_at = select(Session.started_at).where(Session.id == found.c.id).scalar_subquery()
    latest = select(found.c.id).order_by(started_at.desc().nulls_last(), found.c.id.desc()).limit(1)
    exact = select(Session.id).where(Session.title == _TITLE)
    return select(func.coalesce(latest.scalar_subquery(), exact.scalar_subquery()))


def _family() -> ClauseElement:
    number = func.ltrim(_REST, "0")
    greatest = (
        select(number)
        .where(_follows(bindparam("stem", type_=TEXT)), _IS_NUMBERED)
        .order_by(func.length(number).desc(), number.desc())
        .limit(1)
    )
    found = _relatives()
    has_title = select(Session.id).where(Session.title == _TITLE).exists()
    exists = or_(has_title, select(found.c.id).where(found.c.id.is_not(None)).exists())
    return select(exists, greatest.scalar_subquery())


RESOLVE = Prepared(_resolve)
FAMILY = Prepared(_family)
OWNER = Prepared(select(Session.id).where(Session.title == _TITLE))


def family(base: str) -> Params:
    """Return the parameters of the statements above for the titles `<base> #<number>`."""
    stem = f"{base} #"
    return {
        "title": base,
        "stem": stem,
        "stem_length": len(stem),
        "folded_stem": fold_ascii(stem),
        "starts": text_list(_starts(stem)),
    }


def _starts(stem: str) -> list[str]:
    """Return the beginnings, in every ASCII case, of texts that equal the stem but for case."""
    starts = [""]
    for sign in stem[:_LONGEST_START]:
        cases = sorted({sign.lower(), sign.upper()}) if sign.isascii() else [sign]
        if len(starts) * len(cases) > _MOST_STARTS:
            break
        starts = [start + case for start in starts for case in cases]
    return starts


def _numbered(base: str, number: int) -> tuple[str, bool]:
    """Return the title of a segment, and whether the base had to be cut for it."""
    suffix = f" #{number}" if number > 1 else ""
    room = MAX_TITLE_LENGTH - len(suffix)
    if len(base) <= room:
        return base + suffix, False
    return base[:room].rstrip() + suffix, True


class TitleFamilyRepository(Repository):
    """Titles that differ by a number only."""

    def resolve_session_by_title(self, title: str) -> str | None:
        """Return the id of the latest segment of a conversation, by the title of its first one.

        Segments are titled `<title> #<number>`, in upper or lower case; without any, the session
        with exactly this title is meant. None when there is none.
        """
        base = lookup_key(title)
        found: str | None = None
        if base is not None:
            found = self.tx.scalar(RESOLVE, family(base))
        return found

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """Return the title for the next segment: the base itself, or with the next number.

        A number at the end of `base_title` is ignored. A base that is too long with its number is
        cut. Nothing is reserved: another session may be given the title first.
        """
        base = _NUMBER.sub("", base_title)
        if lookup_key(base) is None:
            return base
        exists, greatest = self.tx.all(FAMILY, family(base))[0]
        number = max(int(greatest or 0), 1) + 1 if exists else 1
        title, is_cut = _numbered(base, number)
        while is_cut and self._is_taken(title):  # by another family, whose base is cut to the same
            number += 1
            title, is_cut = _numbered(base, number)
        return title

    def _is_taken(self, title: str) -> bool:
        return self.tx.first(OWNER, {"title": title}) is not None
