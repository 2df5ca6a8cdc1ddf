"""The full-text objects of each layout: FTS5 tables, the views behind them, their triggers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hermes_orm.dialects.sqlite.search_ddl import SUBSTRINGS, WORDS, FtsIndex


@dataclass(frozen=True)
class IndexText:
    """An index as statements: what makes its objects, its triggers, and fills it."""

    name: str
    objects: tuple[str, ...]
    triggers: tuple[str, ...]
    fill: str


def newest(index: FtsIndex) -> IndexText:
    """Return an index of layout 3, as a new database has it."""
    return IndexText(
        index.name,
        (index.table_ddl(), index.view_ddl()),
        index.trigger_ddl(),
        f"INSERT INTO {index.name} ({index.name}) VALUES ('rebuild')",
    )


def historic(
    name: str,
    texts: Mapping[str, str],
    *,
    source: str | None = "messages",
    options: str = "",
    covers: str = "1",
    guarded: bool = False,
) -> IndexText:
    """Return an index of an earlier layout; `texts` and `covers` are expressions on `{row}`.

    `source` is the content option: `messages`, a view of it, or None for an own copy of the text.
    With `guarded` the triggers leave alone what a running rebuild still has to reach.
    """
    columns = ", ".join(texts)
    content = "" if source is None else f", content='{source}', content_rowid='id'"
    objects = [f"CREATE VIRTUAL TABLE {name} USING fts5({columns}{content}{options})"]
    if source not in (None, "messages"):
        listed = ", ".join(f"message.{column}" for column in ("id", "role", *texts))
        objects.append(
            f"CREATE VIEW {source} AS SELECT {listed} FROM messages AS message "
            f"WHERE {covers.format(row='message')}"
        )
    selected = ", ".join(texts.values())
    insertion = f"INSERT INTO {name} (rowid, {columns}) SELECT {{row}}.id, {selected}"
    add = f"{insertion} WHERE {covers}".format(row="NEW") + (f" AND {_FILLED}" if guarded else "")
    # Deleting what is not in the index would corrupt it.
    remove = (
        f"DELETE FROM {name} WHERE rowid = OLD.id"
        if source is None
        else f"INSERT INTO {name} ({name}, rowid, {columns}) "
        f"SELECT 'delete', OLD.id, {selected.format(row='OLD')} "
        f"WHERE EXISTS (SELECT 1 FROM {name}_docsize WHERE id = OLD.id)"
    )
    fill = f"{insertion} FROM messages AS message WHERE {covers}".format(row="message")
    return IndexText(name, tuple(objects), _triggers(name, texts, add, remove, guarded), fill)


def _triggers(
    name: str, texts: Mapping[str, str], add: str, remove: str, guarded: bool
) -> tuple[str, ...]:
    event = "UPDATE ON messages"
    if guarded:
        watched = (*texts, "role")
        changed = " OR ".join(f"OLD.{column} IS NOT NEW.{column}" for column in watched)
        event = f"UPDATE OF {', '.join(watched)} ON messages WHEN {changed}"
    return (
        f"CREATE TRIGGER {name}_insert AFTER INSERT ON messages BEGIN {add}; END",
        f"CREATE TRIGGER {name}_delete AFTER DELETE ON messages BEGIN {remove}; END",
        f"CREATE TRIGGER {name}_update AFTER {event} BEGIN {remove}; {add}; END",
    )


def _setting(key: str) -> str:
    return f"coalesce((SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = '{key}'), -1)"


_FILLED = (
    f"(NEW.id > {_setting('fts_rebuild_high_water')} "
    f"OR NEW.id <= {_setting('fts_rebuild_progress')})"
)
_BASE, _TRIGRAM = "messages_fts", "messages_fts_trigram"
_VIEW = f"{_TRIGRAM}_src"
_TRIGRAMS = ", tokenize='trigram'"
_CONTENT = {"content": "{row}.content"}
_FIELDS = {name: f"{{row}}.{name}" for name in ("content", "tool_name", "tool_calls")}
_JOINED = {"content": " || ' ' || ".join(f"coalesce({text}, '')" for text in _FIELDS.values())}
_START_OF_TOOLS = {
    **_FIELDS,
    "content": "CASE {row}.role WHEN 'tool' THEN substr({row}.content, 1, 8192) "
    "ELSE {row}.content END",
}
_NO_TOOLS = "{row}.role <> 'tool'"
_NO_CRON = (
    f"{_NO_TOOLS} AND NOT EXISTS (SELECT 1 FROM sessions AS session "
    "WHERE session.id = {row}.session_id AND session.source = 'cron')"
)

LAYOUTS: Mapping[str | None, tuple[IndexText, ...]] = {
    None: (),
    "A": (historic(_BASE, _CONTENT),),
    "B": (historic(_BASE, _CONTENT), historic(_TRIGRAM, _CONTENT, options=_TRIGRAMS)),
    "inline": (
        historic(_BASE, _JOINED, source=None),
        historic(_TRIGRAM, _JOINED, source=None, options=_TRIGRAMS),
    ),
    "1": (
        historic(_BASE, _FIELDS, guarded=True),
        historic(
            _TRIGRAM, _FIELDS, source=_VIEW, options=_TRIGRAMS, covers=_NO_TOOLS, guarded=True
        ),
    ),
    "2": (
        historic(_BASE, _START_OF_TOOLS, guarded=True),
        historic(
            _TRIGRAM,
            {name: _FIELDS[name] for name in ("content", "tool_name")},
            source=_VIEW,
            options=_TRIGRAMS,
            covers=_NO_CRON,
            guarded=True,
        ),
    ),
    "3": (newest(WORDS), newest(SUBSTRINGS)),
}
"""The indexes of each layout; section 4 of the schema history describes them."""

NAMES = frozenset(
    f"{table}{part}"
    for table in (_BASE, _TRIGRAM)
    for part in ("", "_src", "_insert", "_delete", "_update")
)
"""Every object that belongs to a layout."""
