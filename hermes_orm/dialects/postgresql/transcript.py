"""How message rows enter a transcript on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_orm.dialects.base import Transaction, Transcript


class PostgreSQLTranscript(Transcript):
    """Appends on PostgreSQL."""

    def append(self, tx: Transaction, session_id: str, row: dict[str, Any]) -> int | None:
        raise NotImplementedError

    def extend(self, tx: Transaction, session_id: str, rows: Sequence[dict[str, Any]]) -> bool:
        raise NotImplementedError
