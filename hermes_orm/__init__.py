"""Session store of the Hermes agent on SQLite and PostgreSQL, in one implementation."""

from hermes_orm.config import (
    MAX_SAFE_EXPORT_MESSAGES,
    MAX_SAFE_RESUME_MESSAGES,
    resolve_journal_mode,
    resolved_max_export_messages,
    resolved_max_resume_messages,
)
from hermes_orm.dialects.sqlite.driver import is_sqlite_wal_reset_vulnerable
from hermes_orm.error_causes import (
    PERSISTENCE_ERROR_CAUSES,
    classify_persistence_error,
    format_session_db_unavailable,
    get_last_init_error,
    is_disk_full_error,
    is_malformed_db_error,
)
from hermes_orm.errors import (
    CompressionSessionBusyError,
    CompressionSessionClosedError,
    ReadOnlyStoreError,
    SchemaError,
    SessionCompressionInProgressError,
    SessionExportTooLargeError,
    SessionResumeTooLargeError,
    SessionTurnLeaseLostError,
    StoreClosedError,
    StoreLockedError,
    UnknownSessionError,
    WalUnsupportedError,
)
from hermes_orm.home import DEFAULT_DB_PATH
from hermes_orm.rows import (
    ContextEntry,
    ConversationMessage,
    MessageRow,
    RichSessionRow,
    SearchHit,
    SessionRow,
)
from hermes_orm.session_db import SessionDB

__all__ = [
    "DEFAULT_DB_PATH",
    "MAX_SAFE_EXPORT_MESSAGES",
    "MAX_SAFE_RESUME_MESSAGES",
    "PERSISTENCE_ERROR_CAUSES",
    "CompressionSessionBusyError",
    "CompressionSessionClosedError",
    "ContextEntry",
    "ConversationMessage",
    "MessageRow",
    "ReadOnlyStoreError",
    "RichSessionRow",
    "SchemaError",
    "SearchHit",
    "SessionCompressionInProgressError",
    "SessionDB",
    "SessionExportTooLargeError",
    "SessionResumeTooLargeError",
    "SessionRow",
    "SessionTurnLeaseLostError",
    "StoreClosedError",
    "StoreLockedError",
    "UnknownSessionError",
    "WalUnsupportedError",
    "classify_persistence_error",
    "format_session_db_unavailable",
    "get_last_init_error",
    "is_disk_full_error",
    "is_malformed_db_error",
    "is_sqlite_wal_reset_vulnerable",
    "resolve_journal_mode",
    "resolved_max_export_messages",
    "resolved_max_resume_messages",
]
