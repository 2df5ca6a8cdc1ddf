"""Columns by which several hosts share background delegations; a SQLite file is used by one host.

Not in the models: the agent reads and writes them with SQL of its own.
"""

from sqlalchemy import Connection

LEASE_COLUMNS = {
    "owner_instance_id": 'text COLLATE "C"',
    "lease_expires_at": "double precision",
}
"""Of `async_delegations`: which instance works on it, and until when that is certain."""


def add_delegation_leases(connection: Connection) -> None:
    """Add the columns where they are missing."""
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS {n} {type_}" for n, type_ in LEASE_COLUMNS.items())
    connection.exec_driver_sql(f"ALTER TABLE async_delegations {added}")


def drop_delegation_leases(connection: Connection) -> None:
    """Drop the columns; no lease outlives the processes that must stop for a downgrade anyway."""
    dropped = ", ".join(f"DROP COLUMN IF EXISTS {name}" for name in LEASE_COLUMNS)
    connection.exec_driver_sql(f"ALTER TABLE async_delegations {dropped}")
