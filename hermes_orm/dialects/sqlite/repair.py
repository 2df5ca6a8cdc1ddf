"""Search indexes that are damaged or not kept: repaired at opening and when a write fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection

from hermes_orm.dialects.sqlite import search_settings
from hermes_orm.dialects.sqlite import search_upkeep as upkeep
from hermes_orm.dialects.sqlite.driver import as_standard, is_busy
from hermes_orm.dialects.sqlite.indexing import SQLiteIndexing
from hermes_orm.dialects.sqlite.search import SQLiteSearch
from hermes_orm.dialects.sqlite.search_settings import SearchSettings
from hermes_orm.dialects.sqlite.transaction import HeldConnection

REPAIRS: Final = (upkeep.restore_search, upkeep.detach_search)
"""What is done about damage that a store meets: at first, and when it comes back."""

_UNEXPLAINED: Final = {"constraint failed", "SQL logic error"}
"""All that FTS5 says of some damage; errors of ordinary tables tell more."""

logger = logging.getLogger("hermes_orm.sqlite")


def open_search(held: HeldConnection, wanted: SearchSettings) -> None:
    """Put the search indexes of a file in order; when that fails, writes go on without them."""
    parts, has_cjk = held.dialect, wanted.has_cjk
    parts.indexing, parts.search = SQLiteIndexing(wanted), SQLiteSearch(has_cjk)

    def put_in_order(connection: Connection) -> None:
        search_settings.follow(connection, wanted)
        upkeep.ensure_search(connection, has_cjk=has_cjk)

    try:
        is_followed = search_settings.is_followed(held.connection, wanted)
        if is_followed and not upkeep.needs_opening_work(held.connection, has_cjk=has_cjk):
            return
        _in_transaction(held, put_in_order)
    except Exception as error:
        if is_busy(error):
            raise
        logger.warning("messages are searched by scan: %s", as_standard(error))
        _in_transaction(held, upkeep.detach_search)
    finally:
        held.rollback()


def close_search(held: HeldConnection) -> None:
    """Leave a file whose indexes every program can keep; never an error."""
    if not held.dialect.indexing.defers:
        return
    try:
        _in_transaction(held, search_settings.end_deferral)
    except Exception as error:  # noqa: BLE001  (the next opening does it)
        logger.info("the search index stays deferred: %s", as_standard(error))


def merge_search(held: HeldConnection) -> None:
    """Merge some of the small parts that many writes leave in the indexes; never an error."""
    connection = held.connection
    try:
        for index in upkeep.present(upkeep.objects(connection), cjk=True):
            upkeep.merge(connection, index, is_first=not held.merges)
        held.merges += 1
    except Exception as error:  # noqa: BLE001  (whoever wrote has his result already)
        logger.info("a search index is not merged: %s", as_standard(error))
    finally:
        held.rollback()


def is_damage(error: BaseException | None) -> bool:
    """Whether a write failed because of a search index, or may have."""
    if not isinstance(error, Exception) or is_busy(error):
        return False
    return str(as_standard(error)) in _UNEXPLAINED or SQLiteSearch().is_damage(error)


def heal(held: HeldConnection) -> bool:
    """Repair the search indexes after a write failed because of them; whether it may succeed now.

    The first time they are built anew. When that does not help, nothing keeps them any more: a
    message is stored in any case, and the next writable opening builds them.
    """
    for repair in REPAIRS[held.repairs :]:
        held.repairs += 1
        try:
            _in_transaction(held, repair)
        except Exception as error:  # noqa: BLE001  (damage has many forms)
            if is_busy(error):
                held.repairs -= 1
                return True  # the write will find out by itself, and wait
            logger.warning("a search index cannot be repaired: %s", as_standard(error))
        else:
            logger.warning("a damaged search index made a write fail: %s", repair.__name__)
            return True
    return False


def _in_transaction(held: HeldConnection, repair: Callable[[Connection], object]) -> None:
    held.rollback()
    held.begin("BEGIN IMMEDIATE")
    try:
        repair(held.connection)
        held.commit()
    except BaseException:
        held.rollback()
        raise
