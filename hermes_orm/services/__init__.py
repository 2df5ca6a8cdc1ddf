"""Flows of several transactions."""
