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
    MigrationRequiredError,
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
from hermes_orm.repositories.sessions.activity import ActivityProvenance
from hermes_orm.repositories.sessions.workspaces import workspace_key
from hermes_orm.rows import (
    ActiveSessionRow,
    CompressionCooldown,
    ContextEntry,
    ConversationMessage,
    CooldownRow,
    MessageRow,
    RichSessionRow,
    ScaffoldedSession,
    SearchHit,
    SessionActivity,
    SessionRow,
    WorkspaceRow,
)
from hermes_orm.session_db import SessionDB
from hermes_orm.session_text import sanitize_title

__all__ = [
    "DEFAULT_DB_PATH",
    "MAX_SAFE_EXPORT_MESSAGES",
    "MAX_SAFE_RESUME_MESSAGES",
    "PERSISTENCE_ERROR_CAUSES",
    "ActiveSessionRow",
    "ActivityProvenance",
    "CompressionCooldown",
    "CompressionSessionBusyError",
    "CompressionSessionClosedError",
    "ContextEntry",
    "ConversationMessage",
    "CooldownRow",
    "MessageRow",
    "MigrationRequiredError",
    "ReadOnlyStoreError",
    "RichSessionRow",
    "ScaffoldedSession",
    "SchemaError",
    "SearchHit",
    "SessionActivity",
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
    "WorkspaceRow",
    "classify_persistence_error",
    "format_session_db_unavailable",
    "get_last_init_error",
    "is_disk_full_error",
    "is_malformed_db_error",
    "is_sqlite_wal_reset_vulnerable",
    "resolve_journal_mode",
    "resolved_max_export_messages",
    "resolved_max_resume_messages",
    "sanitize_title",
    "workspace_key",
]
