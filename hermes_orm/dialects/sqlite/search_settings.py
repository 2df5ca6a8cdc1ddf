"""Settings of a store that change which indexes its file has, and when they are filled."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, func, select

from hermes_orm.dialects.indexing import OPEN_END, REBUILD, Gap, clear_rebuild
from hermes_orm.dialects.sqlite import search_upkeep as upkeep
from hermes_orm.dialects.sqlite.search_ddl import SUBSTRINGS
from hermes_orm.models import Message, StateMeta


class SearchSettings(NamedTuple):
    """What a store wants of its indexes."""

    has_cjk: bool = False
    """Whether its connections have loaded the CJK tokenizer."""
    has_trigrams: bool = True
    """Whether substrings have an index; else every search for them is a scan."""
    defers: bool = False
    """Whether appends leave the index to later steps."""


def is_followed(connection: Connection, settings: SearchSettings) -> bool:
    """Whether the file is as the settings want it; reads only."""
    is_right = settings.has_trigrams
    if upkeep.is_marked(connection, upkeep.SUBSTRINGS_STALE):
        found = upkeep.objects(connection)
        is_right = not (settings.has_trigrams or any(n in found for n in SUBSTRINGS.triggers))
    return is_right and settings.defers == defers_appends(connection)


def follow(connection: Connection, settings: SearchSettings) -> None:
    """Make the file as the settings want it, before its indexes are put in order."""
    if settings.has_trigrams:
        upkeep.unmark(connection, upkeep.SUBSTRINGS_STALE)
    else:
        retire_substrings(connection)
    if settings.defers:
        defer_appends(connection)
    else:
        end_deferral(connection)


def retire_substrings(connection: Connection) -> None:
    """Keep the trigram index no more; a file without messages loses it, too."""
    upkeep.drop_triggers(connection, [SUBSTRINGS])
    if _last_id(connection) == 0:
        upkeep.drop_search(connection, [SUBSTRINGS])
    upkeep.mark(connection, upkeep.SUBSTRINGS_STALE)


def defer_appends(connection: Connection) -> None:
    """Leave what is appended from now on to later steps, after what these have still to index."""
    if not upkeep.is_marked(connection, REBUILD.high_water):
        upkeep.mark(connection, REBUILD.progress, str(_last_id(connection)))
    upkeep.mark(connection, REBUILD.high_water, str(OPEN_END))


def end_deferral(connection: Connection) -> None:
    """Leave to later steps only what is written already; nobody has to know of deferral then."""
    if not defers_appends(connection):
        return
    if is_pending(connection):
        upkeep.mark(connection, REBUILD.high_water, str(_last_id(connection)))
    else:
        clear_rebuild(connection, REBUILD)


def is_pending(connection: Connection) -> bool:
    """Whether there are messages that steps have still to index."""
    keys = {key: _value(connection, key) for key in REBUILD}
    gap = Gap.of(keys, REBUILD)
    return gap is not None and (not gap.is_open or gap.after_id < _last_id(connection))


def defers_appends(connection: Connection) -> bool:
    """Whether the file says that appends leave the index to later steps."""
    return _value(connection, REBUILD.high_water) == str(OPEN_END)


def _value(connection: Connection, key: str) -> str | None:
    return connection.scalar(select(StateMeta.value).where(StateMeta.key == key))


def _last_id(connection: Connection) -> int:
    return connection.scalar(select(func.max(Message.id))) or 0
