"""Which model a session runs on: route, settings, and the prompt that was made for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import bindparam, func, null, select, update

from hermes_orm import clock
from hermes_orm.dialects import Prepared
from hermes_orm.models import Session
from hermes_orm.repositories.base import Repository
from hermes_orm.repositories.sessions.prompts import PromptRepository, prompt_hash
from hermes_orm.repositories.sessions.sessions import STORE_CONFIG
from hermes_orm.rows import JsonObject
from hermes_orm.session_text import (
    decode_config,
    encode_config,
    indexed_text,
    lookup_key,
    session_text,
)

logger = logging.getLogger(__name__)

MODEL_LOCK: Final = "browser_model_lock"
"""The key of `model_config` that holds the model which a user has chosen."""

_ROUTE: Final = ("model", "model_config", "billing_provider", "billing_base_url", "billing_mode")
_LOCKED: Final = ("session_id", "system_prompt_hash", *_ROUTE)
_THIS: Final = Session.id == bindparam("session_id")

GET_CONFIG = Prepared(select(Session.model_config).where(_THIS))
LOCK = Prepared(
    select(Session.id, *(getattr(Session, name) for name in _LOCKED[1:]))
    .where(_THIS)
    .with_for_update(key_share=True)
)
STORE_META = Prepared(
    update(Session)
    .where(_THIS)
    .values(
        model_config=bindparam("model_config"),
        model=func.coalesce(bindparam("model"), Session.model),
    )
)
STORE_PROMPT = Prepared(
    update(Session)
    .where(_THIS)
    .values(system_prompt=null(), system_prompt_hash=bindparam("prompt"))
)
STORE_ROUTE = Prepared(
    update(Session)
    .where(_THIS)
    .values(
        system_prompt=null(),
        system_prompt_hash=null(),
        **{name: bindparam(name) for name in _ROUTE},
    )
)


def config_of(session_id: str, stored: str | None) -> JsonObject:
    """Return a stored `model_config`; an empty one, with a warning, when it is no JSON object."""
    config = decode_config(stored)
    if config is None and stored is not None:
        logger.warning("sessions: model_config of %r is no JSON object and is ignored", session_id)
    return config or {}


def patched_config(session_id: str, stored: str | None, patch: Mapping[str, Any]) -> str:
    """Return a stored `model_config` with the keys of `patch` replaced; None removes its key."""
    config = {**config_of(session_id, stored), **patch}
    for key in patch:
        if config[key] is None:
            del config[key]
    return encode_config(config)


class SessionModelRepository(Repository):
    """Rows of `sessions`: model, route, settings and prompt."""

    def update_system_prompt(self, session_id: str, system_prompt: str | None) -> None:
        """Give the session another system prompt; None takes it away."""
        row, prompt = self._locked(session_id), session_text(system_prompt)
        if row is None:
            return
        prompts, stored, digest = PromptRepository(self.tx), row["system_prompt_hash"], None
        if prompt is not None:
            digest = prompt_hash(prompt)
            if digest == stored:
                return
            prompts.keep(digest, prompt)
        self.tx.run(STORE_PROMPT, {"session_id": row["session_id"], "prompt": digest})
        if stored is not None:
            prompts.sweep(stored)

    def update_session_meta(
        self, session_id: str, model_config_json: str | None, model: str | None = None
    ) -> None:
        """Store a `model_config` as it is, valid JSON or not, and the model unless it is None.

        Raises TypeError for a config that is no text.
        """
        if not isinstance(model_config_json, str | None):
            raise TypeError("model_config_json must be JSON text: encode it with json.dumps")
        meta = {
            "session_id": lookup_key(session_id),
            "model_config": session_text(model_config_json),
            "model": indexed_text(model, "model"),
        }
        self.tx.run(STORE_META, meta)

    def update_session_model(self, session_id: str, model: str | None) -> None:
        """Switch to another model; the model that the user has locked and the prompt are dropped.

        A config that is a JSON object is written anew in compact form.
        """
        if (row := self._locked(session_id)) is not None:
            config = decode_config(row["model_config"])
            if config is not None:
                config.pop(MODEL_LOCK, None)
                row["model_config"] = encode_config(config, compact=True)
            self._store({**row, "model": indexed_text(model, "model")})

    def update_session_runtime_lock(
        self,
        session_id: str,
        *,
        model: str | None = None,
        provider: str | None = None,
        model_options: Mapping[str, Any] | None = None,
        route_source: str | None = None,
        confirmed: bool = False,
    ) -> None:
        """Lock the session to a model by `browser_model_lock` in its config; drop its prompt.

        The session's own model changes unless `model` is None. A config that is no JSON object is
        replaced. Raises TypeError for options that are not JSON.
        """
        if (row := self._locked(session_id)) is not None:
            lock = {
                "provider": provider or "",
                "model": model or "",
                "model_options": model_options or {},
                "route_source": route_source or "",
                "confirmed": bool(confirmed),
                "updated_at": clock.now(),
            }
            row["model_config"] = patched_config(
                row["session_id"], row["model_config"], {MODEL_LOCK: lock}
            )
            if model is not None:
                row["model"] = indexed_text(model, "model")
            self._store(row)

    def update_session_billing_route(
        self,
        session_id: str,
        *,
        provider: str | None,
        base_url: str | None,
        billing_mode: str | None = None,
    ) -> None:
        """Store who is billed, and how unless `billing_mode` is None; drop the prompt."""
        if (row := self._locked(session_id)) is not None:
            row["billing_provider"] = indexed_text(provider, "provider")
            row["billing_base_url"] = indexed_text(base_url, "base_url")
            if billing_mode is not None:
                row["billing_mode"] = indexed_text(billing_mode, "billing_mode")
            self._store(row)

    def patch_session_model_config(self, session_id: str, patch: Mapping[str, Any]) -> None:
        """Replace top-level keys of `model_config`; None removes a key. Parallel patches add up.

        A config that is no JSON object counts as empty. Nothing happens when `patch` is no dict.
        Raises TypeError for a value that is not JSON.
        """
        if not session_id or not isinstance(patch, Mapping):
            return
        if (row := self._locked(session_id)) is not None:
            key = row["session_id"]
            config = patched_config(key, row["model_config"], patch)
            self.tx.run(STORE_CONFIG, {"session_id": key, "config": config})

    def get_session_model_config_value(self, session_id: str, key: str, default: Any = None) -> Any:
        """Return the value of a top-level key of `model_config`, `default` when it is absent."""
        stored = self.tx.scalar(GET_CONFIG, {"session_id": lookup_key(session_id or None)})
        return config_of(session_id, stored).get(key, default)

    def _locked(self, session_id: str) -> dict[str, Any] | None:
        row = self.tx.first(LOCK, {"session_id": lookup_key(session_id)})
        return None if row is None else dict(zip(_LOCKED, row, strict=True))

    def _store(self, row: dict[str, Any]) -> None:
        """Write the route of a locked session, and drop the prompt: it names another one."""
        self.tx.run(STORE_ROUTE, row)
        if row["system_prompt_hash"] is not None:
            PromptRepository(self.tx).sweep(row["system_prompt_hash"])
