"""Session store of the Hermes agent on SQLite and PostgreSQL, in one implementation."""
