"""A profile gets another name: in labels, in session keys, and in the JSON that holds both."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    ColumnElement,
    Select,
    bindparam,
    case,
    delete,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, aliased

from hermes_orm.codec import is_encodable
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.bound_rows import bound_rows, row_list
from hermes_orm.dialects.expressions import insert_from
from hermes_orm.models import (
    AsyncDelegation,
    ConversationGeneration,
    DeliveryObligation,
    GatewayHeartbeat,
    GatewayHygieneState,
    GatewayRouting,
    Session,
    TelegramTopicBinding,
    TelegramTopicMode,
)
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.gateway.namespaces import in_namespace, move, moved
from hermes_orm.repositories.gateway.routing import decoded_entry
from hermes_orm.repositories.gateway.topic_tables import TopicTableRepository
from hermes_orm.rows import JsonObject
from hermes_orm.session_text import escape_like, indexed_text

CHUNK: Final = 1_000
NEEDLES: Final = ("ascii_name", "name", "ascii_namespace", "namespace")


def _relabel(column: InstrumentedAttribute[Any]) -> Prepared:
    values: dict[str, Any] = {column.key: bindparam("new")}
    return Prepared(update(column.class_).where(column == bindparam("old")).values(values))


def _rekey(column: InstrumentedAttribute[Any]) -> Prepared:
    statement = update(column.class_).where(in_namespace(column))
    return Prepared(lambda: statement.values({column.key: moved(column)}))


def _holds(text: InstrumentedAttribute[Any]) -> ColumnElement[bool]:
    """Whether a text may name the profile or its namespace, in either style of JSON."""
    return or_(*(text.contains(bindparam(n, type_=TEXT), escape="\\") for n in NEEDLES))


def _collision() -> ClauseElement:
    taken = aliased(GatewayRouting)
    return (
        select(taken.session_key)
        .join_from(GatewayRouting, taken, taken.scope == GatewayRouting.scope)
        .where(
            in_namespace(GatewayRouting.session_key),
            taken.session_key == moved(GatewayRouting.session_key),
        )
        .order_by(taken.session_key)
        .limit(1)
    )


def _merge(
    counter: InstrumentedAttribute[int], *key: InstrumentedAttribute[str]
) -> Callable[[], ClauseElement]:
    """Return the statement that keeps a counter under the new key, too: the larger of both."""

    def build() -> ClauseElement:
        *others, session_key = key
        columns: list[Any] = [*others, moved(session_key), counter]
        rows: Select[Any] = select(*columns).where(in_namespace(session_key))
        model: Any = counter.class_
        statement = insert_from(model, [column.key for column in (*key, counter)], rows)
        given = statement.excluded[counter.key]
        return statement.on_conflict_do_update(
            index_elements=[column.key for column in key],
            set_={counter.key: case((given > counter, given), else_=counter)},
        )

    return build


def _store_origins() -> ClauseElement:
    rows = bound_rows("rows", {"id": TEXT, "text": TEXT}).subquery("given")
    return update(Session).where(Session.id == rows.c.id).values(origin_json=rows.c.text)


def _store_entries() -> ClauseElement:
    types = dict.fromkeys(("scope", "session_key", "new_key", "text"), TEXT)
    rows = bound_rows("rows", types).subquery("given")
    return (
        update(GatewayRouting)
        .where(
            GatewayRouting.scope == rows.c.scope, GatewayRouting.session_key == rows.c.session_key
        )
        .values(session_key=rows.c.new_key, entry_json=rows.c.text)
    )


COLLISION = Prepared(_collision)
MODES_OF = Prepared(
    select(TelegramTopicMode.chat_id).where(TelegramTopicMode.profile_name == bindparam("new"))
)
BINDINGS_OF = Prepared(
    select(TelegramTopicBinding.chat_id).where(
        TelegramTopicBinding.profile_name == bindparam("new")
    )
)
CORE: Final = {
    "sessions_profile_name": _relabel(Session.profile_name),
    "gateway_heartbeats_profile": _relabel(GatewayHeartbeat.profile),
    "sessions_session_key": _rekey(Session.session_key),
}
UNCOUNTED: Final = (
    _relabel(Session.transport_profile),
    _rekey(AsyncDelegation.origin_session),
    Prepared(_merge(GatewayHygieneState.failure_streak, GatewayHygieneState.session_key)),
    Prepared(delete(GatewayHygieneState).where(in_namespace(GatewayHygieneState.session_key))),
    # The old counter stays: no value of it may be issued again.
    Prepared(
        _merge(
            ConversationGeneration.generation,
            ConversationGeneration.source,
            ConversationGeneration.session_key,
        )
    ),
)
ON_DEMAND: Final = {
    (DeliveryObligation, "adapter_profile"): _relabel(DeliveryObligation.adapter_profile),
    (DeliveryObligation, "session_key"): _rekey(DeliveryObligation.session_key),
    (TelegramTopicMode, "profile_name"): _relabel(TelegramTopicMode.profile_name),
    (TelegramTopicBinding, "profile_name"): _relabel(TelegramTopicBinding.profile_name),
    (TelegramTopicBinding, "session_key"): _rekey(TelegramTopicBinding.session_key),
}
_LIMIT: Final = bindparam("limit", type_=BigInteger())
_PLACE: Final = tuple_(GatewayRouting.scope, GatewayRouting.session_key)
ORIGINS = Prepared(
    select(Session.id, Session.origin_json)
    .where(Session.id > bindparam("after"), _holds(Session.origin_json))
    .order_by(Session.id)
    .limit(_LIMIT)
)
ENTRIES = Prepared(
    select(GatewayRouting.scope, GatewayRouting.session_key, GatewayRouting.entry_json)
    .where(
        tuple_(bindparam("scope", type_=TEXT), bindparam("after", type_=TEXT)) < _PLACE,
        or_(in_namespace(GatewayRouting.session_key), _holds(GatewayRouting.entry_json)),
    )
    .order_by(GatewayRouting.scope, GatewayRouting.session_key)
    .limit(_LIMIT)
)
STORE_ORIGINS = Prepared(_store_origins)
STORE_ENTRIES = Prepared(_store_entries)


class RenamingRepository(TopicTableRepository):
    """All rows in which a profile is named."""

    def rekey_profile_state(self, old_name: str, new_name: str) -> dict[str, int]:
        """Give a profile another name wherever it stands; return the number of rows per column.

        Nothing for names that are empty or equal. Raises ValueError, with nothing changed, when
        the new name has routing entries under the keys to be, or Telegram topics. Counters go on
        under the new keys from the larger value; those of conversations stay under the old, too.
        """
        names = (indexed_text(name, "profile name") for name in (old_name, new_name))
        old, new = ((name or "").strip() for name in names)
        if not old or not new or old == new:
            return {}
        change: dict[str, Any] = {"old": old, "new": new, **move(old, new)}
        self.mend()
        self._check(change)
        counts = {name: self.tx.run(statement, change) for name, statement in CORE.items()}
        counts["sessions_origin_json"] = self._rewrite_origins(change)
        counts["gateway_routing"] = self._rewrite_entries(change)
        for statement in UNCOUNTED:
            self.tx.run(statement, change)
        for (model, name), statement in ON_DEMAND.items():
            if name in (self.tx.dialect.on_demand.columns(self.tx, model.__table__) or ()):
                counts[f"{model.__tablename__}_{name}"] = self.tx.run(statement, change)
        return counts

    def _check(self, change: dict[str, Any]) -> None:
        taken = self.tx.scalar(COLLISION, change)
        if taken is not None:
            raise ValueError(f"profile routing collision: {taken!r} has a routing entry already")
        if (self.has(TelegramTopicMode) and self.tx.first(MODES_OF, change)) or (
            self.has(TelegramTopicBinding) and self.tx.first(BINDINGS_OF, change)
        ):
            raise ValueError(
                f"profile identity collision: {change['new']!r} has Telegram topics already"
            )

    def _rewrite_origins(self, change: dict[str, Any]) -> int:
        page = {**_needles(change), "after": "", "limit": CHUNK}
        changed = 0
        while rows := self.tx.all(ORIGINS, page):
            texts = [(key, _rewritten(text, change, _rename)) for key, text in rows]
            changed += self._store(STORE_ORIGINS, [row for row in texts if row[1] is not None])
            page["after"] = rows[-1][0]
        return changed

    def _rewrite_entries(self, change: dict[str, Any]) -> int:
        page = {**change, **_needles(change), "scope": "", "after": "", "limit": CHUNK}
        changed = 0
        while rows := self.tx.all(ENTRIES, page):
            entries = [
                (scope, key, _new_key(key, change), _rewritten(text, change, _rename_entry) or text)
                for scope, key, text in rows
            ]
            differing = [
                entry
                for entry, row in zip(entries, rows, strict=True)
                if entry[1:] != (row[1], row[1], row[2])
            ]
            changed += self._store(STORE_ENTRIES, differing)
            page.update(scope=rows[-1][0], after=rows[-1][1])
        return changed

    def _store(self, statement: Prepared, rows: Sequence[Sequence[Any]]) -> int:
        return self.tx.run(statement, {"rows": row_list(rows)}) if rows else 0


def _needles(change: dict[str, Any]) -> dict[str, str]:
    spellings = [
        json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        for text in (change["old"], change["prefix"])
        for is_ascii in (True, False)
    ]
    return dict(zip(NEEDLES, map(escape_like, spellings), strict=True))


def _new_key(key: str, change: dict[str, Any]) -> str:
    prefix: str = change["prefix"]
    return change["new_prefix"] + key[len(prefix) :] if key.startswith(prefix) else key


def _rewritten(
    text: str, change: dict[str, Any], rename: Callable[[JsonObject, dict[str, Any]], bool]
) -> str | None:
    """Return a JSON object with the new name in it; None for text that stays as it is."""
    document = decoded_entry(text)
    if document is None or not rename(document, change):
        return None
    written = json.dumps(document, ensure_ascii=False)
    return written if is_encodable(written) else json.dumps(document)


def _rename(origin: JsonObject, change: dict[str, Any]) -> bool:
    if origin.get("profile") != change["old"]:
        return False
    origin["profile"] = change["new"]
    return True


def _rename_entry(entry: JsonObject, change: dict[str, Any]) -> bool:
    origin, key = entry.get("origin"), entry.get("session_key")
    has_changed = isinstance(origin, dict) and _rename(origin, change)
    if isinstance(key, str) and key != (new_key := _new_key(key, change)):
        entry["session_key"] = new_key
        return True
    return has_changed
