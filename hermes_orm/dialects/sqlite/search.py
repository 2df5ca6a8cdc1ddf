"""Full-text search on SQLite."""

from __future__ import annotations

from hermes_orm.dialects.base import Search


class SQLiteSearch(Search):
    """Search on SQLite."""
