"""Keys of gateway conversations: `agent:<namespace>:...`."""

from __future__ import annotations

from typing import Final

DEFAULT_PROFILE: Final = "default"
_PROFILES: Final = {"main": DEFAULT_PROFILE, "main~": "main"}
_NAMESPACES: Final = {profile: namespace for namespace, profile in _PROFILES.items()}


def session_key_profile(session_key: object) -> str | None:
    """Return the profile that a session key belongs to; None when it names none.

    `agent:main:` is the profile `default`, and `agent:main~:` the profile `main`.
    """
    parts = session_key.split(":", 2) if isinstance(session_key, str) else []
    if len(parts) < 3 or parts[0] != "agent" or not parts[1]:
        return None
    return _PROFILES.get(parts[1], parts[1])


def session_key_namespace(profile: str | None) -> str:
    """Return how the session keys of a profile begin, without the colon at the end."""
    name = profile or DEFAULT_PROFILE
    return f"agent:{_NAMESPACES.get(name, name)}"


def have_same_profile(key: str | None, other: str | None) -> bool:
    """Whether a profile may pass between two sessions: one has no key, or the namespaces agree."""
    return not key or not other or session_key_profile(key) == session_key_profile(other)
