"""How a session comes to be: insert it, or fill what its row does not hold yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from sqlalchemy import ClauseElement, bindparam, case, false, func, or_, select, update
from sqlalchemy.orm import aliased

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import insert_into
from hermes_orm.errors import shown
from hermes_orm.models import Session
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.lineage.lineage import is_continuation
from hermes_orm.repositories.sessions.keys import have_same_profile
from hermes_orm.repositories.sessions.markers import RESET_FROM
from hermes_orm.repositories.sessions.prompts import PromptRepository, prompt_hash
from hermes_orm.repositories.sessions.sessions import STORE_CONFIG
from hermes_orm.session_text import (
    check_entry,
    decode_config,
    encode_config,
    indexed_text,
    session_text,
    stored_key,
)


class SessionFields(TypedDict, total=False):
    """What a session may be given when it is ensured; None is the same as nothing."""

    model_config: Mapping[str, Any] | str | None
    system_prompt: str | None
    user_id: str | None
    session_key: str | None
    chat_id: str | None
    chat_type: str | None
    thread_id: str | None
    parent_session_id: str | None
    cwd: str | None
    profile_name: str | None
    git_repo_root: str | None
    origin_json: str | None
    display_name: str | None


class NewSessionFields(SessionFields, total=False):
    """What a session may be given when it is created."""

    model: str | None


_KEYWORDS: Final = NewSessionFields.__annotations__.keys()
_TEXTS: Final = _KEYWORDS - {"model_config", "system_prompt", "parent_session_id"}
_CHAT: Final = ("user_id", "chat_id", "chat_type", "thread_id")
_INDEXED: Final = _TEXTS & {"session_key", "model", *_CHAT}
_FILLED: Final = (*sorted(_TEXTS), "parent_session_id", "model_config", "system_prompt_hash")

PLACE: Final = ("cwd", "git_repo_root", "git_branch", "profile_name")
"""What every child inherits."""

PEER: Final = (
    "user_id",
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "display_name",
    "origin_json",
    "transport_profile",
)
"""What a continuation inherits: whom the conversation is with. A helper must not answer there."""

_INHERITED: Final = PLACE + PEER


@dataclass(frozen=True, slots=True)
class NewSession:
    """The encoded arguments of a creation."""

    row: Mapping[str, Any]
    prompt: str | None

    @classmethod
    def of(cls, session_id: str, source: str, fields: Mapping[str, Any]) -> NewSession:
        """Encode the arguments.

        Raises TypeError for an unknown keyword or a config that is not JSON, ValueError for an id
        that cannot be stored or names itself as parent.
        """
        for name in fields.keys() - _KEYWORDS:
            raise TypeError(f"a session has no keyword {name!r}; known: {sorted(_KEYWORDS)}")
        key, parent = stored_key(session_id), fields.get("parent_session_id")
        if parent is not None:
            parent = stored_key(parent)
        if parent == key:
            raise _cycle(key, key)
        prompt = session_text(fields.get("system_prompt"))
        profile = session_text(fields.get("profile_name"))
        row: dict[str, Any] = {name: session_text(fields.get(name)) for name in _TEXTS}
        row |= {name: indexed_text(fields.get(name), name) for name in _INDEXED}
        row |= {
            "id": key,
            "source": indexed_text(source, "source"),
            "started_at": clock.now(),
            "parent_session_id": parent,
            "profile_name": profile if profile and profile.strip() else None,
            "model_config": _config_text(fields.get("model_config")),
            "system_prompt_hash": None if prompt is None else prompt_hash(prompt),
        }
        check_entry({name: row[name] for name in ("source", *_CHAT)})
        return cls(row, prompt)

    @property
    def stands_alone(self) -> bool:
        """Whether the row refers to no other row."""
        return self.prompt is None and self.row["parent_session_id"] is None


def _config_text(config: Mapping[str, Any] | str | None) -> str | None:
    if not config:
        return None
    if isinstance(config, str) and decode_config(config) is not None:
        return session_text(config)
    return encode_config(config)


def _cycle(session_id: str, parent: str) -> ValueError:
    return ValueError(
        f"the parent {shown(parent)} of session {shown(session_id)} would close a cycle: "
        "a session cannot descend from itself"
    )


def _create() -> ClauseElement:
    names = ("id", "source", "started_at", *_FILLED)
    values: dict[str, Any] = {name: bindparam(name) for name in names}
    # A row that is there already gets a profile only if one is given.
    profile = bindparam("profile_name", type_=TEXT)
    stamped = func.coalesce(profile, bindparam("owner", type_=TEXT))
    values |= {"created_source": bindparam("source"), "profile_name": stamped}
    statement = insert_into(Session, values)
    given: Any = {**statement.excluded, "profile_name": profile}
    filled: dict[str, Any] = {
        name: func.coalesce(getattr(Session, name), given[name]) for name in _FILLED
    }
    # A new prompt takes the place of an inline prompt of an old file.
    keeps_prompt = or_(
        Session.system_prompt_hash.is_not(None), given["system_prompt_hash"].is_(None)
    )
    filled["system_prompt"] = case((keeps_prompt, Session.system_prompt))
    can_fill = or_(
        *(getattr(Session, name).is_(None) & given[name].is_not(None) for name in _FILLED)
    )
    # A reset's placeholder is merged with the config, under a lock.
    is_final = or_(
        given["model_config"].is_(None),
        Session.model_config.is_(None),
        Session.model_config.not_like(f"%{RESET_FROM}%"),
    )
    return statement.on_conflict_do_update(
        index_elements=["id"], set_=filled, where=can_fill & is_final
    ).returning(func.coalesce(Session.system_prompt_hash, ""))


CREATE = Prepared(_create)
STORED_CONFIG = Prepared(select(Session.model_config).where(Session.id == bindparam("id")))
LOCK = Prepared(
    select(Session.model_config, Session.system_prompt_hash, Session.parent_session_id)
    .where(Session.id == bindparam("id"))
    .with_for_update(key_share=True)
)


def _descends() -> ClauseElement:
    ancestor = (
        select(Session.id, Session.parent_session_id)
        .where(Session.id == bindparam("parent_session_id"))
        .cte(recursive=True)
    )
    ancestor = ancestor.union(
        select(Session.id, Session.parent_session_id).join(
            ancestor, Session.id == ancestor.c.parent_session_id
        )
    )
    return select(ancestor.c.id).where(ancestor.c.id == bindparam("id"))


DESCENDS = Prepared(_descends)


def _pair() -> ClauseElement:
    child, parent = aliased(Session), aliased(Session)
    columns = [getattr(session, name) for session in (child, parent) for name in _INHERITED]
    return (
        select(func.coalesce(is_continuation(child, parent), false()), *columns)
        .join_from(child, parent, parent.id == child.parent_session_id)
        .where(child.id == bindparam("id"))
    )


PAIR = Prepared(_pair)
INHERIT = Prepared(
    update(Session)
    .where(Session.id == bindparam("child"))
    .values({name: func.coalesce(getattr(Session, name), bindparam(name)) for name in _INHERITED})
)


class CreationRepository(Repository):
    """Rows of `sessions` as they are created or completed."""

    def place(self, new: NewSession, owner: str | None) -> bool:
        """Create or fill a session that refers to no other row, in one statement.

        A new one without a profile is given to the `owner` of the store.

        Return False, with nothing changed, when the row may be the placeholder of a reset: its
        config has to be merged, which `create` does.
        """
        row = {**new.row, "owner": owner}
        if self.tx.first(CREATE, row) is not None or new.row["model_config"] is None:
            return True
        stored: str | None = self.tx.scalar(STORED_CONFIG, {"id": new.row["id"]})
        return stored is None or RESET_FROM not in stored

    def create(self, new: NewSession, owner: str | None = None) -> None:
        """Insert the session, or fill its row's empty columns; then inherit from its parent."""
        key, parent = new.row["id"], new.row["parent_session_id"]
        stored = self.tx.first(LOCK, {"id": key})
        row = new.row if stored is None else self._completed(new, *stored)
        prompt = row["system_prompt_hash"]
        prompts = PromptRepository(self.tx)
        if prompt is not None and new.prompt is not None:
            prompts.keep(prompt, new.prompt)
        written = self.tx.scalar(CREATE, {**row, "owner": owner})
        if prompt is not None and written != prompt:
            prompts.sweep(prompt)
        if stored is None and written is None:  # created by somebody else in between
            self.create(new, owner)
        elif parent:
            self._inherit(key)

    def _completed(
        self, new: NewSession, config: str | None, prompt: str | None, parent: str | None
    ) -> Mapping[str, Any]:
        """Return what the locked row still lacks, its config merged and its new parent checked."""
        row = dict(new.row)
        if parent is None and row["parent_session_id"] is not None and self.tx.all(DESCENDS, row):
            raise _cycle(row["id"], row["parent_session_id"])
        if prompt is not None:
            row["system_prompt_hash"] = None
        if config is not None:
            self._merge_reset(row["id"], decode_config(config), decode_config(row["model_config"]))
            row["model_config"] = None
        return row

    def _merge_reset(
        self, key: str, stored: dict[str, Any] | None, given: dict[str, Any] | None
    ) -> None:
        """Give the placeholder that a reset has made its real config, once."""
        if given and stored is not None and stored.keys() == {RESET_FROM}:
            merged = encode_config(given | stored, compact=True)
            self.tx.run(STORE_CONFIG, {"session_id": key, "config": merged})

    def _inherit(self, key: str) -> None:
        """Copy what the row lacks from the parent that it names."""
        pair = self.tx.first(PAIR, {"id": key})
        if pair is None:
            return
        own = dict(zip(_INHERITED, pair[1:], strict=False))
        given = dict(zip(_INHERITED, pair[1 + len(_INHERITED) :], strict=True))
        if not have_same_profile(own["session_key"], given["session_key"]):
            given["profile_name"] = None
        if not pair[0]:
            given |= dict.fromkeys(PEER)
        if any(own[name] is None and given[name] is not None for name in _INHERITED):
            self.tx.run(INHERIT, {**given, "child": key})
