"""Markers in a session's `model_config`: what kind of child it is."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, and_, or_

from hermes_orm.dialects.expressions import json_text_value
from hermes_orm.models import Session

BRANCHED_FROM: Final = "_branched_from"
"""A visible copy that was branched off another session."""
DELEGATE_FROM: Final = "_delegate_from"
"""The run of a subagent."""
RESET_FROM: Final = "_reset_from"
"""A fresh conversation that replaced another one."""


def config_marker(session: type[Session], key: str) -> ColumnElement[str]:
    """Return the marker's value; NULL when absent, null, or the config is malformed."""
    return json_text_value(session.model_config, key)


def is_bound(child: type[Session], parent: type[Session], key: str) -> ColumnElement[bool]:
    """Whether the marker says something about this edge; never NULL.

    It does when it names the parent, or was not inherited: a compressed session hands its whole
    config to its continuation, markers included. `parent` may be an outer-joined row.
    """
    own, inherited = config_marker(child, key), config_marker(parent, key)
    return and_(own.is_not(None), or_(inherited.is_(None), inherited != own, own == parent.id))
