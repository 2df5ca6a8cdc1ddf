"""Schema version and key/value settings of the database."""

from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from hermes_orm.models.base import Base

HEAD_REVISION = "0031"
"""Alembic revision that the models describe."""

SCHEMA_VERSION = 31
"""Number in `schema_version` at that revision: what other programs read."""

COPY_MARK = "hermes_copy_source"
"""Key of `state_meta` in an unfinished copy, which may lack references: what it is a copy of."""


class SchemaVersion(Base):
    """The single row with the schema number that other programs read."""

    __tablename__ = "schema_version"

    version: Mapped[int] = mapped_column()
    # The table has no key; a mapper needs one.
    __mapper_args__: dict[str, Any] = {"primary_key": [version]}  # noqa: RUF012


class StateMeta(Base):
    """A setting. Unknown keys belong to the application and are kept."""

    __tablename__ = "state_meta"

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str | None]
