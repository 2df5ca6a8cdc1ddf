"""Deleting, pruning and archiving sessions."""
