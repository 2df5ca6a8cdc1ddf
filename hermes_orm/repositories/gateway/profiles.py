"""Profiles that share a store: whose sessions are whose, and what a profile leaves behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    and_,
    bindparam,
    delete,
    func,
    null,
    or_,
    select,
    union,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, aliased

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.bound_rows import bound_rows, row_list
from hermes_orm.dialects.expressions import bound_texts, has_key, has_key_of, text_list
from hermes_orm.gateway_rows import CrossedProfiles, KeyedSession
from hermes_orm.models import (
    DeliveryObligation,
    GatewayHeartbeat,
    GatewayRouting,
    Session,
    TelegramTopicBinding,
    TelegramTopicMode,
)
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.gateway.namespaces import (
    AGENT,
    AGENT_END,
    in_namespace,
    move,
    namespace,
)
from hermes_orm.repositories.gateway.namespaces import moved as moved_key
from hermes_orm.repositories.gateway.rows import is_blank
from hermes_orm.repositories.gateway.topic_tables import TopicModel, TopicTableRepository
from hermes_orm.repositories.retention.deletion import chunks
from hermes_orm.repositories.sessions.keys import DEFAULT_PROFILE, session_key_profile
from hermes_orm.session_text import (
    MAX_KEY_BYTES,
    escape_like,
    indexed_text,
    lookup_key,
    session_text,
)

OPEN_OBLIGATIONS: Final = ("pending", "attempting", "failed")
ABANDONED: Final = "abandoned"

_GIVEN: Final = has_key_of(Session.id, bound_texts("ids"))
_PROFILE: Final[ColumnElement[str]] = bindparam("profile", type_=TEXT)


def _is_agents(key: InstrumentedAttribute[Any]) -> ColumnElement[bool]:
    return and_(key >= AGENT, key < AGENT_END)


def _crossed() -> ClauseElement:
    """Select what may not be the owner's alone: key, label or parent's key say something else."""
    parent = aliased(Session)
    is_clean = and_(
        in_namespace(Session.session_key),
        or_(is_blank(Session.profile_name), Session.profile_name == _PROFILE),
        or_(
            parent.session_key.is_(None),
            ~_is_agents(parent.session_key),
            in_namespace(parent.session_key),
        ),
    )
    return (
        select(
            Session.id,
            Session.session_key,
            Session.profile_name,
            Session.message_count,
            Session.parent_session_id,
            parent.session_key,
        )
        .outerjoin(parent, has_key(parent.id, Session.parent_session_id))
        .where(_is_agents(Session.session_key), ~is_clean)
        .order_by(Session.started_at, Session.id)
    )


def _parents() -> ClauseElement:
    parent = aliased(Session)
    return (
        select(Session.id, Session.session_key, parent.session_key)
        .join_from(Session, parent, has_key(parent.id, Session.parent_session_id))
        .where(_GIVEN)
    )


def _relabel() -> ClauseElement:
    rows = bound_rows("rows", {"id": TEXT, "profile": TEXT}).subquery("given")
    return (
        update(Session)
        .where(
            has_key(Session.id, rows.c.id), Session.profile_name.is_distinct_from(rows.c.profile)
        )
        .values(profile_name=rows.c.profile)
    )


def _rekey_legacy() -> ClauseElement:
    return (
        update(Session)
        .where(_GIVEN, in_namespace(Session.session_key))
        .values(session_key=moved_key(Session.session_key), profile_name=_PROFILE)
    )


def _keys_with() -> ClauseElement:
    def of(key: InstrumentedAttribute[Any]) -> Any:
        held = (key.contains(bindparam(n, type_=TEXT), escape="\\") for n in ("platform", "chat"))
        return select(key).where(_is_agents(key), *held)

    return union(of(Session.session_key), of(GatewayRouting.session_key))


def _abandon() -> ClauseElement:
    is_its = or_(
        DeliveryObligation.adapter_profile == _PROFILE,
        in_namespace(DeliveryObligation.session_key),
    )
    is_open = or_(*(DeliveryObligation.state == state for state in OPEN_OBLIGATIONS))
    values = {"state": ABANDONED, "updated_at": bindparam("now")}
    return update(DeliveryObligation).where(is_its, is_open).values(values)


LOCK = Prepared(
    select(Session.id, Session.session_key)
    .where(_GIVEN)
    .order_by(Session.id)
    .with_for_update(key_share=True)
)
CROSSED = Prepared(_crossed)
PARENTS = Prepared(_parents)
RELABEL = Prepared(_relabel)
SEVER = Prepared(update(Session).where(_GIVEN).values(parent_session_id=null()))
REKEY_LEGACY = Prepared(_rekey_legacy)
KEYS_WITH = Prepared(_keys_with)
BACKFILL = Prepared(
    update(Session)
    .where(or_(Session.profile_name.is_(None), func.trim(Session.profile_name) == ""))
    .values(profile_name=_PROFILE)
)
PURGE: Final = {
    "gateway_routing": Prepared(
        delete(GatewayRouting).where(in_namespace(GatewayRouting.session_key))
    ),
    "gateway_heartbeats": Prepared(
        delete(GatewayHeartbeat).where(GatewayHeartbeat.profile == _PROFILE)
    ),
}
PURGE_TOPICS: Final[dict[TopicModel, Prepared]] = {
    TelegramTopicMode: Prepared(
        delete(TelegramTopicMode).where(TelegramTopicMode.profile_name == _PROFILE)
    ),
    TelegramTopicBinding: Prepared(
        delete(TelegramTopicBinding).where(TelegramTopicBinding.profile_name == _PROFILE)
    ),
}
ABANDON = Prepared(_abandon)


class ProfileRepository(TopicTableRepository):
    """Rows that belong to a profile by their label, or by the namespace of their session key."""

    def purge_profile_state(self, profile: str) -> dict[str, int]:
        """Forget where a profile's conversations go; return the number of rows per table.

        Its routing entries, signs of life and Telegram topics are deleted, its open replies are
        given up. Sessions and counters of conversations stay.
        """
        name = _stripped(profile)
        if not name:
            return {}
        self.mend()
        its = {"profile": name, **namespace(name), "now": clock.now()}
        counts = {table: self.tx.run(statement, its) for table, statement in PURGE.items()}
        columns = self.tx.dialect.on_demand.columns(self.tx, DeliveryObligation.__table__)
        if "adapter_profile" in (columns or ()):
            counts[DeliveryObligation.__tablename__] = self.tx.run(ABANDON, its)
        for model, statement in PURGE_TOPICS.items():
            if self.has(model):
                counts[model.__tablename__] = self.tx.run(statement, its)
        return counts

    def backfill_null_session_profiles(self, profile_name: str) -> int:
        """Label the sessions that have no profile; return how many. 0 for a blank name."""
        name = _stripped(profile_name)
        return self.tx.run(BACKFILL, {"profile": name}) if name else 0

    def find_crossed_profile_sessions(self, owner: str) -> CrossedProfiles:
        """Return the sessions that do not belong where they are, by start; `owner` has the store.

        `mislabelled`: the key names another profile than the label. `foreign`: the key names
        another profile than the owner. `crossed_parents`: it names another than the parent's key.
        Sessions whose key names no profile are not looked at.
        """
        owner = _stripped(owner) or DEFAULT_PROFILE
        found: CrossedProfiles = {"mislabelled": [], "foreign": [], "crossed_parents": []}
        rows = self.tx.all(CROSSED, {"profile": owner, **namespace(owner)})
        for session_id, key, label, count, parent_id, parent_key in rows:
            profile, parent_profile = session_key_profile(key), session_key_profile(parent_key)
            if profile is None:
                continue
            named: KeyedSession = {"id": session_id, "session_key": key, "key_profile": profile}
            if label and label != profile:
                found["mislabelled"].append({**named, "profile_name": label})
            if profile != owner:
                found["foreign"].append({**named, "message_count": count})
            if parent_profile is not None and parent_profile != profile:
                found["crossed_parents"].append(
                    {
                        "id": session_id,
                        "key_profile": profile,
                        "parent_session_id": parent_id,
                        "parent_profile": parent_profile,
                    }
                )
        return found

    def relabel_sessions_to_key_profile(self, ids: Iterable[str]) -> int:
        """Label sessions with the profile that their key names; return how many have changed."""
        changed = 0
        for chunk in _chunks(ids):
            rows = [
                (session_id, profile)
                for session_id, key in self.tx.all(LOCK, {"ids": text_list(chunk)})
                if (profile := session_key_profile(key)) is not None
            ]
            changed += self.tx.run(RELABEL, {"rows": row_list(rows)}) if rows else 0
        return changed

    def sever_crossed_parents(self, ids: Iterable[str]) -> int:
        """Make roots of sessions whose key and parent's key name two profiles; return how many."""
        changed = 0
        for chunk in _chunks(ids):
            given = {"ids": text_list(chunk)}
            self.tx.all(LOCK, given)
            crossed = [
                session_id
                for session_id, *keys in self.tx.all(PARENTS, given)
                if len({*map(session_key_profile, keys)} - {None}) == 2
            ]
            changed += self.tx.run(SEVER, {"ids": text_list(crossed)}) if crossed else 0
        return changed

    def rekey_legacy_main_sessions(self, ids: Iterable[str], profile: str) -> int:
        """Give sessions with a key of `agent:main:` to a profile; return how many.

        Their key moves to its namespace, and they get its label. Other sessions stay.
        Raises ValueError for a profile whose name no index can hold.
        """
        name = (indexed_text(profile, "profile name") or "").strip()
        if not name:
            return 0
        change = {"profile": name, **move(DEFAULT_PROFILE, name)}
        return sum(
            self.tx.run(REKEY_LEGACY, {**change, "ids": text_list(chunk)}) for chunk in _chunks(ids)
        )

    def key_profiles_for_chat(self, platform: str, chat_id: str | int) -> set[str]:
        """Return the profiles that have a session key of this chat on this platform."""
        name, chat = lookup_key(platform), lookup_key(chat_id)
        if not name or not chat or len(name) + len(chat) > MAX_KEY_BYTES:  # no key is as long
            return set()
        needles = {"platform": escape_like(f":{name}:"), "chat": escape_like(f":{chat}")}
        keys = (row[0] for row in self.tx.all(KEYS_WITH, needles))
        return {
            profile
            for key in keys
            if (profile := session_key_profile(key)) is not None and _is_of_chat(key, name, chat)
        }


def _is_of_chat(key: str, platform: str, chat: str) -> bool:
    """Whether a key is `agent:<namespace>:<platform>:...:<chat>`, perhaps with more behind it."""
    _, _, own_platform, *rest = key.split(":")
    return own_platform == platform and f":{chat}:" in f":{':'.join(rest)}:"


def _chunks(ids: Iterable[str]) -> Iterable[Sequence[str]]:
    if isinstance(ids, str | bytes):
        raise TypeError("ids must be a list of session ids; put a single one into a list")
    return chunks(key for given in ids if (key := lookup_key(given)) is not None)


def _stripped(name: str | None) -> str:
    return (session_text(name) or "").strip()
