"""Sessions and messages at chosen times, as the worked examples tell them."""

import json
from typing import Any

from tests.raw import Raw


class Story:
    """Writes the rows of a worked example."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw

    async def new(self, session_id: str, at: float = 0, **columns: Any) -> None:
        """A session that started at `at`; `parent` and `config` are short for their columns."""
        columns = {"source": "cli", "started_at": float(at), **columns}
        if parent := columns.pop("parent", None):
            columns["parent_session_id"] = parent
        if config := columns.pop("config", None):
            columns["model_config"] = json.dumps(config)
        await self.insert("sessions", {"id": session_id, **columns})

    async def end(self, session_id: str, reason: str | None, at: float = 0) -> None:
        await self.raw.execute(
            "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ?",
            float(at),
            reason,
            session_id,
        )

    async def msg(
        self, session_id: str, content: str | None = "hi", at: float = 0, **columns: Any
    ) -> None:
        """A message of the user, unless `role` says otherwise."""
        columns = {"role": "user", "content": content, "timestamp": float(at), **columns}
        await self.insert("messages", {"session_id": session_id, **columns})
        await self.raw.execute(
            "UPDATE sessions SET message_count = message_count + 1 WHERE id = ?", session_id
        )

    async def chain(self, **root: Any) -> None:
        """A conversation that was compressed twice: root, mid, tip."""
        await self.new("root", 1, **root)
        await self.end("root", "compression", 2)
        await self.new("mid", 2, parent="root")
        await self.end("mid", "compression", 3)
        await self.new("tip", 3, parent="mid")

    async def insert(self, table: str, *rows: dict[str, Any]) -> None:
        """Rows of a table, all of the same columns, in one statement."""
        marks = ", ".join("?" * len(rows[0]))
        await self.raw.execute(
            f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES "
            + ", ".join([f"({marks})"] * len(rows)),
            *(value for row in rows for value in row.values()),
        )


def ids(rows: Any) -> list[str]:
    return [row["id"] for row in rows]
