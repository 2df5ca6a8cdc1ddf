"""Profiles in the keys of gateway conversations: gateway.md section 1.2."""

import pytest

from hermes_orm.repositories.sessions.keys import have_same_profile, session_key_profile


@pytest.mark.parametrize(
    ("key", "profile"),
    [
        ("agent:main:telegram:dm:1", "default"),
        ("agent:main~:telegram", "main"),
        ("agent:work:", "work"),
        ("agent:work", None),
        ("agent::telegram", None),
        ("other:work:telegram", None),
        ("", None),
        (None, None),
        (5, None),
    ],
)
def test_profile_of_a_key(key: object, profile: str | None) -> None:
    assert session_key_profile(key) == profile


def test_profile_passes_without_a_key_or_in_one_namespace() -> None:
    assert have_same_profile(None, "agent:a:x") and have_same_profile("agent:a:x", "")
    assert have_same_profile("agent:a:x", "agent:a:y") and have_same_profile("k", "z")
    assert not have_same_profile("agent:a:x", "agent:b:x")
    assert not have_same_profile("agent:a:x", "k")
