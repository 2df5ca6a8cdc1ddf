"""Rows of sessions: creation, metadata, titles, flags, counts."""
