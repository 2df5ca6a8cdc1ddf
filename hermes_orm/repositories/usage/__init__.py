"""Tokens and costs: totals of sessions, and what each model, route and task took."""
