"""Durable ids of messages, for those of older programs: each must have one before it is copied."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, Update, update

from hermes_orm.dialects.expressions import insert_into, new_uid
from hermes_orm.models import Message, StateMeta

DONE: Final = "message_uid_backfill"
"""Key of `state_meta`: every message has an id. Other programs know it, too."""


def give_uids(*which: ColumnElement[bool]) -> Update:
    """Give an id to those of some messages that have none."""
    return (
        update(Message).where(*which, Message.message_uid.is_(None)).values(message_uid=new_uid())
    )


def give_all(connection: Connection) -> None:
    """Give every message an id, and say so."""
    connection.execute(give_uids())
    done = insert_into(StateMeta, {"key": DONE, "value": "1"})
    connection.execute(
        done.on_conflict_do_update(index_elements=[StateMeta.key], set_={"value": "1"})
    )
