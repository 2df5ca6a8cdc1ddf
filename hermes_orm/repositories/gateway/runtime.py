"""What a session's metadata tells about the provider that it ran on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hermes_orm.rows import JsonObject
from hermes_orm.session_text import decode_config

_KEYS: Final = ("provider", "base_url", "api_mode")
_NO_PROVIDER: Final = frozenset({"", "auto", "custom"})


def session_gateway_runtime(session_meta: Mapping[str, Any] | None) -> JsonObject:
    """Return the runtime that a session row names: provider, base URL and the like.

    That is `gateway_runtime` in its `model_config` if it has a provider; else the provider, URL and
    mode at the top of the config, a missing provider taken from the billing route; else `{}`.
    """
    meta = session_meta or {}
    config = meta.get("model_config")
    if not isinstance(config, Mapping):
        config = decode_config(config if isinstance(config, str) else None) or {}
    stored = config.get("gateway_runtime")
    runtime = (
        {key: value for key, value in stored.items() if value is not None}
        if isinstance(stored, Mapping)
        else {}
    )
    if runtime.get("provider"):
        return runtime
    named = {key: config[key] for key in _KEYS if config.get(key)}
    billed = meta.get("billing_provider")
    provider = billed.strip() if isinstance(billed, str) else ""
    if "provider" not in named and provider.lower() not in _NO_PROVIDER:
        named["provider"] = provider
    return named or runtime
