"""Stored arguments of sessions, ids and keys, and `model_config`."""

import math
from typing import Any

import pytest

from hermes_orm.session_text import (
    MAX_KEY_BYTES,
    decode_config,
    encode_config,
    indexed_text,
    lookup_key,
    session_text,
    stored_key,
)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        ("", ""),
        ("/srv/é", "/srv/é"),
        ("a\x00b", "a\ufffdb"),
        ("/srv/\udce9", "/srv/\ufffd"),
        (5, "5"),
        (1.5, "1.5"),
        (True, "1"),
    ],
)
def test_arguments_become_storable_text(value: object, stored: str | None) -> None:
    assert session_text(value) == stored


@pytest.mark.parametrize("key", ["a\x00", "\ud800", None])
def test_a_key_that_cannot_be_stored_is_refused(key: object) -> None:
    with pytest.raises(ValueError, match="session id"):
        stored_key(key)
    with pytest.raises(ValueError, match="meta key"):
        stored_key(key, "meta key")


@pytest.mark.parametrize("key", ["x" * 1025, "温" * 342])
def test_a_key_that_no_index_holds_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="a source has at most 1024 bytes"):
        indexed_text(key, "source")
    with pytest.raises(ValueError, match="a session id has at most 1024 bytes") as caught:
        stored_key(key)
    assert key not in str(caught.value)
    assert lookup_key(key) == key  # finds nothing, or what another program stored


@pytest.mark.parametrize("key", ["", "s-1", "x" * MAX_KEY_BYTES, "温室"])
def test_keys_are_never_altered(key: str) -> None:
    assert stored_key(key) == lookup_key(key) == key


@pytest.mark.parametrize("key", ["a\x00", "é\udfff", None])
def test_a_key_that_cannot_be_stored_matches_nothing(key: object) -> None:
    assert lookup_key(key) is None


def test_config_text_has_default_or_compact_separators() -> None:
    config = {"custom": "kept", "é": [1, 2]}
    assert encode_config(config) == '{"custom": "kept", "\\u00e9": [1, 2]}'
    assert encode_config(config, compact=True) == '{"custom":"kept","\\u00e9":[1,2]}'


def test_config_with_nan_is_valid_json() -> None:
    config = {"a": math.nan, "b": [math.inf, {"c": -math.inf}], "d": "NaN"}
    assert decode_config(encode_config(config)) == {"a": None, "b": [None, {"c": None}], "d": "NaN"}


def circular() -> dict[str, Any]:
    config: dict[str, Any] = {}
    config["self"] = config
    return config


@pytest.mark.parametrize("config", [{"a": {1}}, {(1, 2): "x"}, circular()])
def test_config_that_is_no_json_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        encode_config(config)


@pytest.mark.parametrize(
    "stored", [None, "", "{bad", '{"a": NaN}', "[1]", '"x"', "5", "null", "[" * 100_000]
)
def test_malformed_config_counts_as_none(stored: str | None) -> None:
    assert decode_config(stored) is None


def test_config_keeps_escapes() -> None:
    assert decode_config(encode_config({"a": "\x00\ud800"})) == {"a": "\x00\ud800"}
