"""Session store of the Hermes agent on SQLite and PostgreSQL, in one implementation."""

from hermes_orm.session_db import SessionDB

__all__ = ["SessionDB"]
