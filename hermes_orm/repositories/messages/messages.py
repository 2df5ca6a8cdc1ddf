"""Appending to transcripts: arguments become rows, guards refuse rows that came too late."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import ClauseElement, case, select

from hermes_orm import clock
from hermes_orm.arguments import real_number
from hermes_orm.codec import encode_text
from hermes_orm.database import Work
from hermes_orm.dialects import Prepared
from hermes_orm.dialects.prepared import Params
from hermes_orm.dialects.transcript import Overtaken, TurnLease, is_open_for_appends
from hermes_orm.errors import (
    CompressionSessionClosedError,
    SessionTurnLeaseLostError,
    UnknownSessionError,
)
from hermes_orm.models import Session, SessionTurnLease
from hermes_orm.repositories.base import Plans, Repository
from hermes_orm.repositories.lineage.ancestry import SESSION_ID, turn_lease_key
from hermes_orm.repositories.messages.rows import encode_message
from hermes_orm.rows import Content, JsonObject
from hermes_orm.session_text import lookup_key

lease_key = cache(turn_lease_key)


def _why_refused() -> ClauseElement:
    holder = select(SessionTurnLease.holder).where(SessionTurnLease.conversation_id == lease_key())
    is_open = select(case((is_open_for_appends(), 1), else_=0)).where(Session.id == SESSION_ID)
    return select(holder.scalar_subquery(), is_open.scalar_subquery())


WHY_REFUSED: Final = Prepared(_why_refused)


class MessageRepository(Repository):
    """Rows of `messages`, appended to sessions that are open for them."""

    def append(self, row: Params, lease: TurnLease | None) -> int:
        """Append one encoded row; return its id."""
        row_id = self.tx.dialect.transcript.append(self.tx, row, lease)
        if row_id is None:
            raise self.refusal(row["session_id"], lease)
        return row_id

    def extend(self, rows: Sequence[Params], total: Params, lease: TurnLease | None) -> None:
        """Append encoded rows in order."""
        if not self.tx.dialect.transcript.extend(self.tx, rows, total, lease):
            raise self.refusal(total["session_id"], lease)

    def refusal(self, session_id: str, lease: TurnLease | None) -> Exception:
        """Return the error that says why a session took no rows."""
        row = self.tx.first(WHY_REFUSED, {"session_id": session_id})
        holder, is_open = row or (None, None)
        if lease is not None and holder != lease.holder:
            return SessionTurnLeaseLostError.of(session_id)
        if is_open is None:
            return UnknownSessionError(session_id)
        return Overtaken() if is_open else CompressionSessionClosedError(session_id)


class MessagePlans(Plans):
    """Appends whose rows are encoded, and tokenized, before the transaction."""

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Content = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        platform_message_id: str | None = None,
        observed: bool = False,
        effect_disposition: str | None = None,
        timestamp: Any = None,
        api_content: str | None = None,
        display_kind: str | None = None,
        display_metadata: JsonObject | str | None = None,
        compression_lock_holder: str | None = None,
        turn_lease_holder: str | None = None,
        turn_lease_ttl_seconds: float = 300.0,
    ) -> Work[int]:
        """Append one live message to the transcript; return its row id.

        Structured content, `tool_calls` and the other JSON arguments read back equal; without a
        usable `timestamp` the message is of now. `turn_lease_holder` makes the append depend on
        that holder's turn lease, which is renewed when it has expired; `compression_lock_holder`
        has no effect. Nothing is written when it raises SessionTurnLeaseLostError,
        CompressionSessionClosedError for a session that goes on in another one, or
        UnknownSessionError.
        """
        row = encode_message(
            self.dialect.content_marker,
            now=clock.now(),
            role=role,
            content=content,
            tool_name=tool_name,
            tool_calls=tool_calls,
            tool_call_id=tool_call_id,
            token_count=token_count,
            finish_reason=finish_reason,
            reasoning=reasoning,
            reasoning_content=reasoning_content,
            reasoning_details=reasoning_details,
            codex_reasoning_items=codex_reasoning_items,
            codex_message_items=codex_message_items,
            platform_message_id=platform_message_id,
            observed=observed,
            effect_disposition=effect_disposition,
            timestamp=timestamp,
            api_content=api_content,
            display_kind=display_kind,
            display_metadata=display_metadata,
        )
        lease = claimed_lease(turn_lease_holder, turn_lease_ttl_seconds)
        params = {
            **self.dialect.transcript.indexed(row),
            **counted(session_key(session_id, lease), [row]),
        }
        return lambda tx: MessageRepository(tx).append(params, lease)


def claimed_lease(holder: str | None, ttl_seconds: float) -> TurnLease | None:
    """Return the lease that a writer claims to hold; None without a holder."""
    name = encode_text(holder) if holder else None
    if not name:
        return None
    return TurnLease(lease_key(), name, real_number(ttl_seconds, "turn_lease_ttl_seconds"))


def session_key(session_id: str, lease: TurnLease | None) -> str:
    """Return the id to look for; raise as for an unknown session when it can belong to none."""
    key = lookup_key(session_id)
    if key is None:
        raise SessionTurnLeaseLostError.of(session_id) if lease else UnknownSessionError(session_id)
    return key


def counted(session_id: str, rows: Sequence[Params]) -> Params:
    """Return what rows add to the counters of their session."""
    return {
        "session_id": session_id,
        "added_rows": len(rows),
        "added_calls": sum(row["tool_call_count"] for row in rows),
    }
