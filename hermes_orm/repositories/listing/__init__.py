"""Lists of sessions."""
