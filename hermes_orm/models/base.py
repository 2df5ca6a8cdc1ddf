"""Base class, column types and naming rules of the models."""

from typing import Annotated

from sqlalchemy import REAL, BigInteger, Double, Identity, Integer, MetaData, Text, text
from sqlalchemy.orm import DeclarativeBase, mapped_column
from sqlalchemy.types import TypeEngine

TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Unlimited text that orders, compares and folds byte by byte, as SQLite does."""

_BIGINT = BigInteger().with_variant(Integer(), "sqlite")
_DOUBLE: TypeEngine[float] = Double().with_variant(REAL(), "sqlite")
_ZERO = text("0")

RowId = Annotated[int, mapped_column(_BIGINT, Identity(), primary_key=True)]
EpochSeconds = Annotated[float, mapped_column(_DOUBLE)]
"""Unix time, UTC."""
Usd = Annotated[float, mapped_column(_DOUBLE)]
UsdTotal = Annotated[float, mapped_column(_DOUBLE, server_default=_ZERO)]
Flag = Annotated[int, mapped_column(Integer, server_default=_ZERO)]
"""0 or 1."""
Count = Annotated[int, mapped_column(Integer, server_default=_ZERO)]
"""A counter that stays small."""
Total = Annotated[int, mapped_column(_BIGINT, server_default=_ZERO)]
"""A counter that may exceed 32 bits."""
BigInt = Annotated[int, mapped_column(_BIGINT)]
TextOrEmpty = Annotated[str, mapped_column(TEXT, server_default=text("''"))]
"""Text that is empty where nothing is known, for columns that take part in a key."""
JsonText = Annotated[str, mapped_column(TEXT)]
"""JSON kept as the text that was given: stored text may be invalid."""


class Base(DeclarativeBase):
    """Declarative base; its metadata describes the newest schema of both databases."""

    metadata = MetaData(
        naming_convention={
            "pk": "%(table_name)s_pkey",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
        }
    )
    type_annotation_map = {str: TEXT}  # noqa: RUF012  (SQLAlchemy declares it so)
