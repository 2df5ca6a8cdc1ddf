"""Full-text objects of layout 3: views, FTS5 tables and the triggers that mirror `messages`.

A view and the triggers of its index use one expression per column, so that a `delete` command
always passes exactly the text that was indexed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from hermes_orm.dialects.indexing import CJK_REBUILD, REBUILD, Rebuild
from hermes_orm.search.text import INDEXED_CHARACTERS, INDEXED_TOOL_CHARACTERS

_MARKER = "x'006a736f6e3a'"
"""The six bytes in front of structured content."""


def _fields_sql(number: str) -> str:
    """Return type and text of a part of `json`, as a JSON array: one look into the document."""
    path = f"'$[' || ({number}) || ']"
    return f"json_extract(json, {path}.type', {path}.text')"


def decoded_content_sql(alias: str) -> str:
    """Return the expression for the whole text of a message's content.

    Plain text is itself; structured content is the texts of its text parts, joined with a blank;
    a string that was stored as JSON is that string; undecodable JSON is NULL. U+0000 inside JSON is
    a blank.
    """
    # Functions of text stop at U+0000, so the marker and what follows are taken from the octets.
    # JSON functions stop there in some releases only, and all must index a shared file alike. FTS5
    # refuses a content source that uses a virtual table: that rules out json_each.
    octets = f"CAST({alias}.content AS BLOB)"
    return f"""
        CASE WHEN substr({octets}, 1, 6) <> {_MARKER} THEN {alias}.content ELSE (
            SELECT CASE WHEN json_valid(json) THEN CASE json_type(json)
                WHEN 'text' THEN json_extract(json, '$')
                WHEN 'array' THEN (
                    WITH RECURSIVE part (number, total, fields) AS (
                        SELECT 0, json_array_length(json), {_fields_sql("0")}
                        UNION ALL
                        SELECT number + 1, total, {_fields_sql("number + 1")}
                        FROM part WHERE number + 1 < total
                    )
                    SELECT group_concat(json_extract(fields, '$[1]'), ' ') FROM part
                    WHERE json_extract(fields, '$[0]') = 'text'
                    AND json_type(fields, '$[1]') = 'text'
                )
            END END
            FROM (
                SELECT replace(CAST(substr({octets}, 7) AS TEXT), '\\u0000', '\\u0020') AS json
                LIMIT 1  -- computes it once
            )
        ) END
    """


def search_text_sql(alias: str) -> str:
    """Return the expression for the indexed part of a message's content.

    U+0000 ends the text of a message that is cut.
    """
    text = decoded_content_sql(alias)
    limit = (
        f"CASE {alias}.role WHEN 'tool' THEN {INDEXED_TOOL_CHARACTERS} "
        f"ELSE {INDEXED_CHARACTERS} END"
    )
    return f"""
        CASE WHEN length(CAST({alias}.content AS BLOB)) > {limit}
        THEN substr({text}, 1, {limit}) ELSE {text} END
    """


def column_sql(alias: str, column: str) -> str:
    """Return the indexed part of a column: the columns of a message share one budget, in order."""
    content = search_text_sql(alias)
    if column == "content":
        return content
    before = [f"coalesce(length({content}), 0)"]
    names = ["content", "tool_name"]
    if column == "tool_calls":
        before.append(f"coalesce(length({alias}.tool_name), 0)")
        names.append("tool_calls")
    octets = " + ".join(f"coalesce(length(CAST({alias}.{name} AS BLOB)), 0)" for name in names)
    return f"""
        CASE WHEN {alias}.{column} IS NULL OR {octets} <= {INDEXED_CHARACTERS}
        THEN {alias}.{column}
        ELSE substr(
            {alias}.{column}, 1, max(0, {INDEXED_CHARACTERS} - ({" + ".join(before)}))
        ) END
    """


def eligible_session_sql(alias: str) -> str:
    """Return the condition on a session whose messages substring search covers."""
    return f"""
        {alias}.source NOT IN ('cron', 'subagent')
        AND CASE WHEN json_valid({alias}.model_config)
            THEN json_extract({alias}.model_config, '$._delegate_from') END IS NULL
    """


def _substring_row(alias: str) -> str:
    return f"""
        {alias}.role <> 'tool' AND EXISTS (
            SELECT 1 FROM sessions AS session
            WHERE session.id = {alias}.session_id AND {eligible_session_sql("session")}
        )
    """


def _progress_sql(key: str) -> str:
    return f"coalesce((SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = '{key}'), -1)"


def filled_sql(alias: str, rebuild: Rebuild = REBUILD) -> str:
    """Return the condition that a running rebuild does not still have to reach a message."""
    return (
        f"({alias}.id > {_progress_sql(rebuild.high_water)} "
        f"OR {alias}.id <= {_progress_sql(rebuild.progress)})"
    )


@dataclass(frozen=True)
class FtsIndex:
    """An FTS5 table over a view of `messages`, with the triggers that keep it."""

    name: str
    columns: tuple[str, ...]
    view_columns: tuple[str, ...] = ("id",)
    options: str = ""
    covers: Callable[[str], str] = lambda alias: "1"
    rebuild: Rebuild = REBUILD

    @property
    def triggers(self) -> tuple[str, str, str]:
        """Names of the triggers that keep the index."""
        return f"{self.name}_insert", f"{self.name}_delete", f"{self.name}_update"

    @property
    def view(self) -> str:
        """Name of the view that is the content source."""
        return f"{self.name}_src"

    def table_ddl(self) -> str:
        """Return the statement that creates the FTS5 table, if it does not exist."""
        return (
            f"CREATE VIRTUAL TABLE IF NOT EXISTS {self.name} USING fts5({', '.join(self.columns)}, "
            f"content='{self.view}', content_rowid='id'{self.options})"
        )

    def view_ddl(self) -> str:
        """Return the statement that creates the content source."""
        plain = ", ".join(f"message.{name}" for name in self.view_columns)
        texts = ", ".join(f"{column_sql('message', name)} AS {name}" for name in self.columns)
        return (
            f"CREATE VIEW {self.view} AS SELECT {plain}, {texts} "
            f"FROM messages AS message WHERE {self.covers('message')}"
        )

    def trigger_ddl(self) -> tuple[str, str, str]:
        """Return the statements that create the insert, delete and update triggers."""
        watched = (*self.columns, "role")
        changed = " OR ".join(f"OLD.{name} IS NOT NEW.{name}" for name in watched)
        return (
            f"CREATE TRIGGER {self.name}_insert AFTER INSERT ON messages BEGIN {self._add()}; END",
            f"CREATE TRIGGER {self.name}_delete AFTER DELETE ON messages "
            f"BEGIN {self._remove()}; END",
            f"CREATE TRIGGER {self.name}_update AFTER UPDATE OF {', '.join(watched)} ON messages "
            f"WHEN {changed} BEGIN {self._remove()}; {self._add()}; END",
        )

    def _add(self) -> str:
        return (
            f"INSERT INTO {self.name} (rowid, {', '.join(self.columns)}) "
            f"SELECT NEW.id, {self._texts('NEW')} "
            f"WHERE {filled_sql('NEW', self.rebuild)} AND {self.covers('NEW')}"
        )

    def _remove(self) -> str:
        # Only the index itself knows what it holds: the session may have become ineligible, or
        # be deleted, since the message was indexed. Deleting an absent row would corrupt it.
        return (
            f"INSERT INTO {self.name} ({self.name}, rowid, {', '.join(self.columns)}) "
            f"SELECT 'delete', OLD.id, {self._texts('OLD')} "
            f"WHERE EXISTS (SELECT 1 FROM {self.name}_docsize WHERE id = OLD.id)"
        )

    def _texts(self, alias: str) -> str:
        return ", ".join(column_sql(alias, name) for name in self.columns)


WORDS = FtsIndex("messages_fts", ("content", "tool_name", "tool_calls"))
SUBSTRINGS = FtsIndex(
    "messages_fts_trigram",
    ("content", "tool_name"),
    view_columns=("id", "role"),
    options=", tokenize='trigram'",
    covers=_substring_row,
)


CJK = FtsIndex(
    "messages_fts_cjk",
    ("content", "tool_name", "tool_calls"),
    view_columns=("id", "role"),
    options=", tokenize='cjk_unicode61'",
    covers=lambda alias: f"{alias}.role <> 'tool'",
    rebuild=CJK_REBUILD,
)
"""Exists where the tokenizer was loaded once; without it, its triggers fail."""


def create_search(connection: Connection) -> frozenset[str]:
    """Create the objects of layout 3; return the names of the FTS tables.

    An index whose module or tokenizer this SQLite lacks is left out with its view and triggers.
    """
    return frozenset(index.name for index in (WORDS, SUBSTRINGS) if create_index(connection, index))


def create_index(connection: Connection, index: FtsIndex) -> bool:
    """Create an index unless it exists, and its view and triggers anew; False: not possible."""
    try:
        connection.exec_driver_sql(index.table_ddl())
    except OperationalError as error:
        if is_unsupported(error):
            return False
        raise
    connection.exec_driver_sql(f"DROP VIEW IF EXISTS {index.view}")
    connection.exec_driver_sql(index.view_ddl())
    for name, statement in zip(index.triggers, index.trigger_ddl(), strict=True):
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        connection.exec_driver_sql(statement)
    return True


def is_unsupported(error: Exception) -> bool:
    """Whether an index cannot be created because this SQLite lacks its module or tokenizer."""
    text = str(getattr(error, "orig", error))
    return "no such module" in text or "no such tokenizer" in text
