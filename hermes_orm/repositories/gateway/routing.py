"""Routing entries: what a gateway remembers about a session key, in a scope of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final, TypeVar, cast

from sqlalchemy import BigInteger, ClauseElement, bindparam, delete, select, tuple_

from hermes_orm import clock
from hermes_orm.arguments import finite_number, mapping, real_number
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.bound_rows import bound_rows, insert_rows, row_list
from hermes_orm.dialects.expressions import bound_texts, text_list, upsert
from hermes_orm.gateway_rows import RoutingRow
from hermes_orm.models import GatewayRouting
from hermes_orm.models.base import TEXT
from hermes_orm.repositories.base import Repository
from hermes_orm.rows import JsonObject
from hermes_orm.session_text import MAX_KEY_BYTES, escape_like, lookup_key, session_text, stored_key

T = TypeVar("T")

COLUMNS: Final = tuple(RoutingRow.__annotations__)
CHUNK: Final = 1_000

_key = tuple_(GatewayRouting.scope, GatewayRouting.session_key)
_IS_OF_SCOPE: Final = GatewayRouting.scope == bindparam("scope")
_ALL: Final = [getattr(GatewayRouting, name) for name in COLUMNS]

SAVE = Prepared(
    upsert(
        GatewayRouting,
        {name: bindparam(name) for name in COLUMNS},
        update=("entry_json", "updated_at"),
    )
)
EMPTY_SCOPE = Prepared(delete(GatewayRouting).where(_IS_OF_SCOPE))
LOAD = Prepared(
    select(GatewayRouting.session_key, GatewayRouting.entry_json)
    .where(_IS_OF_SCOPE)
    .order_by(GatewayRouting.session_key)
)
LIST = Prepared(select(*_ALL).order_by(GatewayRouting.scope, GatewayRouting.session_key))
PAGE = Prepared(
    select(*_ALL)
    .where(_key > tuple_(bindparam("scope", type_=TEXT), bindparam("session_key", type_=TEXT)))
    .order_by(GatewayRouting.scope, GatewayRouting.session_key)
    .limit(bindparam("limit", type_=BigInteger()))
)
DELETE_KEYS = Prepared(
    delete(GatewayRouting).where(_IS_OF_SCOPE, GatewayRouting.session_key.in_(bound_texts("keys")))
)


def _naming(style: str) -> Any:
    return GatewayRouting.entry_json.contains(bindparam(style, type_=TEXT), escape="\\")


def _insert(*, replaces: bool) -> ClauseElement:
    statement = insert_rows(GatewayRouting, COLUMNS, "rows")
    key = ["scope", "session_key"]
    if not replaces:
        return statement.on_conflict_do_nothing(index_elements=key)
    changed = {name: statement.excluded[name] for name in COLUMNS if name not in key}
    return statement.on_conflict_do_update(index_elements=key, set_=changed)


def _delete_rows() -> ClauseElement:
    rows = bound_rows("rows", {"scope": TEXT, "session_key": TEXT})
    return delete(GatewayRouting).where(_key.in_(rows))


NAMING = Prepared(
    select(GatewayRouting.entry_json)
    .where(_naming("ascii") | _naming("unicode"))
    .order_by(GatewayRouting.updated_at.desc(), GatewayRouting.scope, GatewayRouting.session_key)
)
INSERT_ABSENT = Prepared(lambda: _insert(replaces=False))
INSERT = Prepared(lambda: _insert(replaces=True))
DELETE_ROWS = Prepared(_delete_rows)


def decoded_entry(entry_json: str) -> JsonObject | None:
    """Return an entry as an object; None for text that is none."""
    try:
        entry = json.loads(entry_json)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def batches(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield the rows in lists of at most CHUNK."""
    remaining = iter(rows)
    while batch := list(itertools.islice(remaining, CHUNK)):
        yield batch


class RoutingRepository(Repository):
    """Rows of `gateway_routing`. Entries are texts that nobody here looks into."""

    def save_gateway_routing_entry(
        self, session_key: str, entry_json: str, *, scope: str = ""
    ) -> None:
        """Keep the entry of a key; without key or entry nothing happens."""
        if session_key and entry_json:
            row = _row(scope, session_key, entry_json, clock.now())
            self.tx.run(SAVE, dict(zip(COLUMNS, row, strict=True)))

    def replace_gateway_routing_entries(
        self, entries: Mapping[str, str], *, scope: str = ""
    ) -> None:
        """Keep these entries, and no other ones, in a scope; without key or text they are none."""
        now = clock.now()
        rows = [
            _row(scope, key, text, now)
            for key, text in mapping(entries, "entries").items()
            if key and text
        ]
        self.tx.run(EMPTY_SCOPE, {"scope": stored_key(scope, "scope")})
        for batch in batches(rows):
            self.tx.run(INSERT, {"rows": row_list(batch)})

    def load_gateway_routing_entries(self, *, scope: str = "") -> dict[str, str]:
        """Return the entries of a scope by their keys."""
        rows = self.tx.all(LOAD, {"scope": lookup_key(scope)})
        return dict(rows)  # type: ignore[arg-type]

    def delete_gateway_routing_entries(
        self, session_keys: Iterable[str], *, scope: str = ""
    ) -> None:
        """Delete the entries of some keys in a scope."""
        known = (key for given in session_keys if (key := lookup_key(given)) is not None)
        for batch in batches(known):
            self.tx.run(DELETE_KEYS, {"scope": lookup_key(scope), "keys": text_list(batch)})

    def list_gateway_routing_rows(self) -> list[RoutingRow]:
        """Return the rows of all scopes, by scope and key."""
        rows = self.tx.all(LIST)
        return [cast(RoutingRow, dict(zip(COLUMNS, row, strict=True))) for row in rows]

    def delete_gateway_routing_rows(self, rows: Iterable[tuple[str, str]]) -> int:
        """Delete rows, given as scope and key; return how many there were."""
        keys = ([lookup_key(scope), lookup_key(key)] for scope, key in rows)
        known = (key for key in keys if None not in key)
        return sum(self.tx.run(DELETE_ROWS, {"rows": row_list(b)}) for b in batches(known))

    def insert_gateway_routing_rows_if_absent(
        self, rows: Iterable[tuple[str, str, str, float]]
    ) -> int:
        """Keep rows (scope, key, entry, time) whose key has none; return how many were kept.

        Rows without key or entry are left out. Of several with one key the first is kept.
        """
        given = [_row(scope, key, text, time) for scope, key, text, time in rows if key and text]
        first = {row[:2]: row for row in reversed(given)}
        return sum(
            self.tx.run(INSERT_ABSENT, {"rows": row_list(batch)})
            for batch in batches(first.values())
        )

    def gateway_routing_entry_for_session(self, session_id: str) -> JsonObject | None:
        """Return the latest entry of any scope that names the session; None when there is none."""
        key = lookup_key(session_id or None)
        if key is None or len(key) > MAX_KEY_BYTES:  # no id is as long
            return None
        spelt = {
            style: escape_like(json.dumps(key, ensure_ascii=style == "ascii")[1:-1])
            for style in ("ascii", "unicode")
        }
        entries = (decoded_entry(row[0]) for row in self.tx.all(NAMING, spelt))
        return next((e for e in entries if e is not None and e.get("session_id") == key), None)

    def delete_naming(self, session_ids: Set[str]) -> int:
        """Delete the rows of all scopes whose entry names one of the sessions; return how many."""
        named = [
            (row["scope"], row["session_key"])
            for row in self._each()
            if (decoded_entry(row["entry_json"]) or {}).get("session_id") in session_ids
        ]
        return self.delete_gateway_routing_rows(named)

    def _each(self) -> Iterator[RoutingRow]:
        last: dict[str, Any] = {"scope": "", "session_key": ""}
        while rows := self.tx.all(PAGE, {**last, "limit": CHUNK}):
            for row in rows:
                last = dict(zip(COLUMNS, row, strict=True))
                yield cast(RoutingRow, last)


def _row(
    scope: str, session_key: str, entry_json: str, updated_at: float
) -> tuple[str, str, str, float]:
    key, entry = stored_key(session_key, "session key"), session_text(entry_json) or ""
    updated_at = finite_number(real_number(updated_at, "updated_at"), "updated_at")
    return stored_key(scope, "scope"), key, entry, updated_at
