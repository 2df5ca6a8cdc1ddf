"""Durable ids of messages, for those of older programs: each must have one before it is copied."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Update, update

from hermes_orm.dialects.expressions import new_uid
from hermes_orm.models import Message

UID_MARK: Final = "message_uid_backfill"
"""Key of `state_meta`: every message has an id. Other programs know it, too."""


def give_uids(*which: ColumnElement[bool]) -> Update:
    """Give an id to those of some messages that have none."""
    lacking = update(Message).where(*which, Message.message_uid.is_(None))
    return lacking.values(message_uid=new_uid())
