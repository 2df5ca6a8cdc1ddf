"""Which profile owns a store."""

from __future__ import annotations

from pathlib import Path

from hermes_orm.config import Settings
from hermes_orm.home import hermes_root, profile_of
from hermes_orm.location import Location, SqliteLocation


def own_profile(location: Location, settings: Settings, home: Path) -> str | None:
    """Return the profile that owns the store; None when nothing tells, or several share it.

    A file's place among the homes of profiles tells it, on PostgreSQL `database.postgres.profile`.
    """
    if isinstance(location, SqliteLocation):
        return profile_of(location.path, hermes_root(home))
    from hermes_orm.dialects.postgresql.settings import read_settings

    return read_settings(settings.postgres, location.driver).profile or None
