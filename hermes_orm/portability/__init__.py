"""Whole databases: copied between SQLite and PostgreSQL, and recovered from damaged files."""
