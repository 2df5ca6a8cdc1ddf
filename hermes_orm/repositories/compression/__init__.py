"""Leases, locks, and what compression of a conversation writes."""
