"""Full-text search on PostgreSQL."""

from __future__ import annotations

from hermes_orm.dialects.base import Search


class PostgreSQLSearch(Search):
    """Search on PostgreSQL."""
