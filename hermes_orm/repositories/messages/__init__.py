"""Transcripts: writing, reading, conversations, undo, resume."""
