"""States of the search index that no public call can make, and its agreement with messages."""

from collections.abc import Iterable

from hermes_orm.codec import decode_content
from hermes_orm.search.vector import tsvector_text
from tests.raw import Raw

TABLES = {
    "messages_fts": ("content", "tool_name", "tool_calls"),
    "messages_fts_trigram": ("content", "tool_name"),
}


class Index:
    """The search index of a store, of either kind."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw

    async def lose(
        self, ids: Iterable[int], *, high_water: int, progress: int | None = None
    ) -> None:
        """Take messages out of the index, as if a rebuild had not reached them."""
        lost = ", ".join(map(str, ids))
        if self._raw.is_postgres:
            await self._raw.execute(f"DELETE FROM message_search WHERE message_id IN ({lost})")
        else:
            for name, columns in TABLES.items():
                texts = ", ".join(columns)
                await self._raw.execute(
                    f"INSERT INTO {name} ({name}, rowid, {texts}) SELECT 'delete', id, {texts} "
                    f"FROM {name}_src WHERE id IN ({lost})"
                )
        await self.defer(high_water, progress)

    async def defer(self, high_water: object, progress: object = None) -> None:
        """Set the keys of a rebuild."""
        await self._raw.execute("DELETE FROM state_meta WHERE key LIKE 'fts_rebuild_%'")
        for key, value in (("high_water", high_water), ("progress", progress)):
            if value is not None:
                await self._raw.execute(
                    "INSERT INTO state_meta (key, value) VALUES (?, ?)",
                    f"fts_rebuild_{key}",
                    str(value),
                )

    async def disown(self) -> None:
        """Define the views of a file's indexes as another program may have, with equal texts."""
        for name, columns in TABLES.items():
            if not self._raw.is_postgres:
                await self._raw.execute(f"DROP VIEW {name}_src")
                await self._raw.execute(
                    f"CREATE VIEW {name}_src AS SELECT id, role, {', '.join(columns)} FROM messages"
                )

    async def change(self, row_id: int, text: str) -> None:
        """Change a text as an operation would, with its entry, if it has one."""
        await self._raw.execute("UPDATE messages SET content = ? WHERE id = ?", text, row_id)
        if self._raw.is_postgres:
            vec, length = tsvector_text(text, None, None, "user")
            await self._raw.execute(
                "UPDATE message_search SET vec = CAST(? AS tsvector), doc_len = ? "
                "WHERE message_id = ?",
                vec,
                length,
                row_id,
            )

    async def check(self, count: int) -> None:
        """Compare the index with all messages, of which there are `count`."""
        if self._raw.is_postgres:
            await self._check_entries(count)
            return
        for name in TABLES:
            await self._raw.execute(
                f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)"
            )
            assert await self._raw.fetch(f"SELECT id FROM {name}_docsize ORDER BY id") == (
                await self._raw.fetch(f"SELECT id FROM {name}_src ORDER BY id")
            )
        assert len(await self._raw.fetch("SELECT id FROM messages_fts_docsize")) == count

    async def _check_entries(self, count: int) -> None:
        messages = await self._raw.fetch(
            "SELECT id, content, tool_name, tool_calls, role FROM messages ORDER BY id"
        )
        assert len(messages) == count
        made = [
            tsvector_text(decode_content(content), name, calls, role)
            for _, content, name, calls, role in messages
        ]
        stored = await self._raw.fetch(
            "SELECT CAST(CAST(vec AS tsvector) AS text) FROM unnest(CAST(? AS text[])) AS t (vec)",
            [vec for vec, _ in made],
        )
        expected = {
            message[0]: (vec, length)
            for message, (vec,), (_, length) in zip(messages, stored, made, strict=True)
        }
        entries = await self._raw.fetch(
            "SELECT message_id, CAST(vec AS text), doc_len FROM message_search"
        )
        assert {row[0]: row[1:] for row in entries} == expected
