"""System prompts: each text is stored once, and leaves with the last session that names it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from sqlalchemy import bindparam, delete, exists, select

from hermes_orm.dialects import Prepared
from hermes_orm.dialects.expressions import bound_texts, has_key_of, text_list, upsert
from hermes_orm.models import Session, SystemPrompt
from hermes_orm.repositories.base import Repository

_THIS = SystemPrompt.hash == bindparam("hash")

HOLD_PROMPT = Prepared(
    select(SystemPrompt.hash).where(_THIS).with_for_update(read=True, key_share=True)
)
HOLD_PROMPTS = Prepared(
    select(SystemPrompt.hash)
    .where(has_key_of(SystemPrompt.hash, bound_texts("hashes")))
    .order_by(SystemPrompt.hash)
    .with_for_update(read=True, key_share=True)
)
ADD_PROMPT = Prepared(
    upsert(SystemPrompt, {"hash": bindparam("hash"), "prompt": bindparam("prompt")})
)
CLAIM_PROMPTS = Prepared(
    select(SystemPrompt.hash)
    .where(has_key_of(SystemPrompt.hash, bound_texts("hashes")))
    .with_for_update(skip_locked=True)
)
SWEEP_PROMPTS = Prepared(
    delete(SystemPrompt).where(
        has_key_of(SystemPrompt.hash, bound_texts("hashes")),
        ~exists().where(Session.system_prompt_hash == SystemPrompt.hash),
        ~exists().where(Session.tool_names == SystemPrompt.hash),
    )
)


def prompt_hash(prompt: str) -> str:
    """Return the key of a prompt: the SHA-256 of its UTF-8 bytes in hex."""
    return hashlib.sha256(prompt.encode()).hexdigest()


class PromptRepository(Repository):
    """Rows of `system_prompts`."""

    def keep(self, key: str, prompt: str) -> None:
        """Store the prompt unless it is there, and protect it from sweeps until the commit."""
        while self.tx.first(HOLD_PROMPT, {"hash": key}) is None:
            if self.tx.run(ADD_PROMPT, {"hash": key, "prompt": prompt}):
                return

    def keep_all(self, prompts: Mapping[str, str]) -> None:
        """Store the prompts that are not there, and protect all from sweeps until the commit."""
        hashes = {"hashes": text_list(prompts)}
        missing = sorted(prompts)
        while missing:
            held = {row[0] for row in self.tx.all(HOLD_PROMPTS, hashes)}
            missing = [key for key in missing if key not in held]
            rows = [{"hash": key, "prompt": prompts[key]} for key in missing]
            if rows:
                self.tx.run_many(ADD_PROMPT, rows)

    def sweep(self, *keys: str) -> None:
        """Delete those of the prompts that no session names as prompt or as tool list.

        A prompt that somebody is just storing is left alone. Once it is claimed, nobody can start
        to refer to it, and the next statement sees everybody who did before.
        """
        claimed = self.tx.all(CLAIM_PROMPTS, {"hashes": text_list(keys)}) if keys else ()
        if claimed:
            self.tx.run(SWEEP_PROMPTS, {"hashes": text_list(row[0] for row in claimed)})
