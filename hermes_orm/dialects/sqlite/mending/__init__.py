"""Repair of files whose catalogue or indexes are damaged."""
