"""Existing SQLite files: recognised, copied, repaired, brought to the newest schema, verified."""
