"""Tables that this project adds to the schema: derived data and the version stamp."""

from typing import Any

from sqlalchemy import Index, PrimaryKeyConstraint, String
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import UserDefinedType

from hermes_orm.models.base import Base, BigInt, EpochSeconds
from hermes_orm.models.deliveries import DeliveryObligation
from hermes_orm.models.topics import TelegramTopicBinding, TelegramTopicMode


class TextSearchVector(UserDefinedType[str]):
    """PostgreSQL's `tsvector`, bound and read as its text form."""

    cache_ok = True

    def get_col_spec(self, **kw: Any) -> str:
        """Return the name that DDL and casts use."""
        return "TSVECTOR"


class AlembicVersion(Base):
    """The revision of the schema; named so that a host's `alembic_version` stays its own."""

    __tablename__ = "hermes_alembic_version"
    # As Alembic itself creates it.
    __table_args__ = (PrimaryKeyConstraint("version_num", name="hermes_alembic_version_pkc"),)

    version_num: Mapped[str] = mapped_column(String(32))


class SessionRecency(Base):
    """The time of a session's last sign of life, derived from its row and its messages."""

    __tablename__ = "hermes_session_recency"
    __table_args__ = ({"sqlite_with_rowid": False},)

    session_id: Mapped[str] = mapped_column(primary_key=True)
    last_active: Mapped[EpochSeconds]


class MessageSearch(Base):
    """Search index entry of a message (PostgreSQL only), which a trigger deletes with it.

    `search_text` is the decoded text of structured content; NULL means `messages.content`.
    """

    __tablename__ = "message_search"

    message_id: Mapped[BigInt] = mapped_column(primary_key=True, autoincrement=False)
    vec: Mapped[str] = mapped_column(TextSearchVector)
    doc_len: Mapped[int]
    search_text: Mapped[str | None]


Index(
    "idx_hermes_session_recency_order",
    SessionRecency.last_active.desc(),
    SessionRecency.session_id,
)
Index("idx_message_search_vec", MessageSearch.vec, postgresql_using="gin")

ON_DEMAND_TABLES = frozenset(
    table.__tablename__ for table in (TelegramTopicMode, TelegramTopicBinding, DeliveryObligation)
)
"""Tables that a SQLite file gets when they are first needed; a server has them from the start."""

OWN_TABLES = frozenset(
    table.__tablename__ for table in (AlembicVersion, SessionRecency, MessageSearch)
)
