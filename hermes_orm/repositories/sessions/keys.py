"""Keys of gateway conversations: `agent:<namespace>:...`."""

from __future__ import annotations


def session_key_profile(key: object) -> str | None:
    """Return the profile that a session key belongs to; None when it names none.

    `agent:main:` is the profile `default`, and `agent:main~:` the profile `main`.
    """
    parts = key.split(":", 2) if isinstance(key, str) else []
    if len(parts) < 3 or parts[0] != "agent" or not parts[1]:
        return None
    return {"main": "default", "main~": "main"}.get(parts[1], parts[1])


def have_same_profile(key: str | None, other: str | None) -> bool:
    """Whether a profile may pass between two sessions: one has no key, or the namespaces agree."""
    return not key or not other or session_key_profile(key) == session_key_profile(other)
