"""The tables of Telegram topics: a SQLite file may lack them, or hold an older form of them."""

from __future__ import annotations

from typing import Final

from hermes_orm.models import TelegramTopicBinding, TelegramTopicMode
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.meta import MetaRepository, setting

TopicModel = type[TelegramTopicMode] | type[TelegramTopicBinding]

VERSION_KEY: Final = "telegram_dm_topic_schema_version"
VERSION: Final = "3"

_TABLES: Final = (TelegramTopicMode.__table__, TelegramTopicBinding.__table__)


class OutdatedTopicTablesError(Exception):
    """A table has no profiles yet; a unit that reads cannot change that."""


class TopicTableRepository(Repository):
    """Whether the tables are there; those who write bring them into their newest form."""

    outdated_is_absent = False
    """Read a table without profiles as if it were not there."""

    def has(self, model: TopicModel) -> bool:
        """Return whether a table can be read; raise OutdatedTopicTablesError for an older form."""
        columns = self.tx.dialect.on_demand.columns(self.tx, model.__table__)
        if columns is None:
            return False
        if "profile_name" in columns:
            return True
        if self.outdated_is_absent:
            return False
        raise OutdatedTopicTablesError

    def mend(self) -> None:
        """Bring an older form of the tables into the newest one; absent tables stay absent."""
        try:
            self.has(TelegramTopicMode)
            self.has(TelegramTopicBinding)
        except OutdatedTopicTablesError:
            self.establish()

    def establish(self) -> None:
        """Create what is missing."""
        if self.tx.dialect.on_demand.establish(self.tx, *_TABLES):
            self._tell_version()

    def apply_telegram_topic_migration(self) -> None:
        """Create the tables of Telegram topics, or bring older ones into the newest form.

        What they hold belongs to the profile `default` then; topics of sessions that are gone are
        left out. Nothing happens when all is there.
        """
        self.tx.dialect.on_demand.establish(self.tx, *_TABLES)
        self._tell_version()

    def _tell_version(self) -> None:
        MetaRepository(self.tx).set_meta(setting(VERSION_KEY, VERSION))
