"""Session store of the Hermes agent on SQLite and PostgreSQL, in one implementation."""

from hermes_orm.config import (
    MAX_SAFE_EXPORT_MESSAGES,
    MAX_SAFE_RESUME_MESSAGES,
    resolve_journal_mode,
    resolved_max_export_messages,
    resolved_max_resume_messages,
)
from hermes_orm.delivery_rows import (
    ClaimedObligation,
    DeliveryReceipt,
    DurableDelegation,
    PendingRetry,
)
from hermes_orm.dialects.sqlite.driver import is_sqlite_wal_reset_vulnerable
from hermes_orm.dialects.sqlite.host_connections import (
    apply_database_pragmas,
    apply_wal_with_fallback,
    sqlite_source_id,
)
from hermes_orm.dialects.sqlite.mending.mend import SchemaRepair, repair_state_db_schema
from hermes_orm.dialects.sqlite.preflight import preflight_db_writability
from hermes_orm.dialects.sqlite.quarantine import (
    is_zeroed_state_db,
    quarantine_zeroed_state_db,
)
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
    CopyError,
    DatabaseFileError,
    MigrationRequiredError,
    ReadOnlyStoreError,
    SchemaError,
    SessionCompressionInProgressError,
    SessionExportTooLargeError,
    SessionRecoveryError,
    SessionRecoverySafetyError,
    SessionRecoverySourceError,
    SessionResumeTooLargeError,
    SessionTurnLeaseLostError,
    StoreClosedError,
    StoreLockedError,
    UnknownSessionError,
    WalUnsupportedError,
)
from hermes_orm.gateway_rows import (
    ActiveGatewayRow,
    GatewaySessionRow,
    NeverActiveSession,
    OrphanedSession,
    RoutingRow,
)
from hermes_orm.home import DEFAULT_DB_PATH
from hermes_orm.portability.recovery import (
    inspect_session_database,
    recover_session_database,
    write_recovery_report,
)
from hermes_orm.repositories.deliveries.obligations import compute_obligation_id
from hermes_orm.repositories.portability.rows import (
    ActiveExport,
    ExportedLineage,
    ExportedSession,
    ImportResult,
    RejectedSession,
)
from hermes_orm.repositories.retention.filters import PruneFilters
from hermes_orm.repositories.sessions.activity import ActivityProvenance
from hermes_orm.repositories.sessions.end_reasons import (
    AUTOMATIC_END_REASONS,
    BOUNDARY_END_REASONS,
    RESET_END_REASONS,
    is_automatic_end_reason,
)
from hermes_orm.repositories.sessions.keys import session_key_namespace, session_key_profile
from hermes_orm.repositories.sessions.workspaces import workspace_key
from hermes_orm.rows import (
    ActiveSessionRow,
    AutoArchiveResult,
    AutoPruneResult,
    CompressionCooldown,
    ContextEntry,
    ConversationMessage,
    CooldownRow,
    MessageRow,
    PruneCandidate,
    RichSessionRow,
    ScaffoldedSession,
    SearchHit,
    SessionActivity,
    SessionRow,
    UsageStatistics,
    WorkspaceRow,
)
from hermes_orm.session_db import SessionDB
from hermes_orm.session_text import sanitize_title

__all__ = [
    "AUTOMATIC_END_REASONS",
    "BOUNDARY_END_REASONS",
    "DEFAULT_DB_PATH",
    "MAX_SAFE_EXPORT_MESSAGES",
    "MAX_SAFE_RESUME_MESSAGES",
    "PERSISTENCE_ERROR_CAUSES",
    "RESET_END_REASONS",
    "ActiveExport",
    "ActiveGatewayRow",
    "ActiveSessionRow",
    "ActivityProvenance",
    "AutoArchiveResult",
    "AutoPruneResult",
    "ClaimedObligation",
    "CompressionCooldown",
    "CompressionSessionBusyError",
    "CompressionSessionClosedError",
    "ContextEntry",
    "ConversationMessage",
    "CooldownRow",
    "CopyError",
    "DatabaseFileError",
    "DeliveryReceipt",
    "DurableDelegation",
    "ExportedLineage",
    "ExportedSession",
    "GatewaySessionRow",
    "ImportResult",
    "MessageRow",
    "MigrationRequiredError",
    "NeverActiveSession",
    "OrphanedSession",
    "PendingRetry",
    "PruneCandidate",
    "PruneFilters",
    "ReadOnlyStoreError",
    "RejectedSession",
    "RichSessionRow",
    "RoutingRow",
    "ScaffoldedSession",
    "SchemaError",
    "SchemaRepair",
    "SearchHit",
    "SessionActivity",
    "SessionCompressionInProgressError",
    "SessionDB",
    "SessionExportTooLargeError",
    "SessionRecoveryError",
    "SessionRecoverySafetyError",
    "SessionRecoverySourceError",
    "SessionResumeTooLargeError",
    "SessionRow",
    "SessionTurnLeaseLostError",
    "StoreClosedError",
    "StoreLockedError",
    "UnknownSessionError",
    "UsageStatistics",
    "WalUnsupportedError",
    "WorkspaceRow",
    "apply_database_pragmas",
    "apply_wal_with_fallback",
    "classify_persistence_error",
    "compute_obligation_id",
    "format_session_db_unavailable",
    "get_last_init_error",
    "inspect_session_database",
    "is_automatic_end_reason",
    "is_disk_full_error",
    "is_malformed_db_error",
    "is_sqlite_wal_reset_vulnerable",
    "is_zeroed_state_db",
    "preflight_db_writability",
    "quarantine_zeroed_state_db",
    "recover_session_database",
    "repair_state_db_schema",
    "resolve_journal_mode",
    "resolved_max_export_messages",
    "resolved_max_resume_messages",
    "sanitize_title",
    "session_key_namespace",
    "session_key_profile",
    "sqlite_source_id",
    "workspace_key",
    "write_recovery_report",
]
