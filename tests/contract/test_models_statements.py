"""How many statements a change of model, prompt or workspace sends."""

from collections.abc import Callable
from typing import Any


async def test_prompts(db: Any, session: str, sent: Callable[[], int]) -> None:
    sent()
    for prompt, statements in [
        ("P", 4),  # lock, look for the prompt, store it, refer to it
        ("P", 1),
        ("Q", 6),  # the same, then claim and delete the old one
        (None, 4),
        (None, 2),
    ]:
        await db.update_system_prompt(session, prompt)
        assert sent() == statements
    await db.update_system_prompt("nope", "P")
    assert sent() == 1


async def test_models(db: Any, session: str, sent: Callable[[], int]) -> None:
    sent()
    for change in (
        db.update_session_model(session, "m"),
        db.update_session_runtime_lock(session, model="m"),
        db.update_session_billing_route(session, provider="p", base_url="u"),
        db.patch_session_model_config(session, {"a": 1}),
    ):
        await change
        assert sent() == 2, "lock, store"
    await db.patch_session_model_config(session, None)
    assert sent() == 0
    await db.update_session_meta(session, "{}")
    assert sent() == 1
    await db.get_session_model_config_value(session, "a")
    assert sent() == 1


async def test_dropping_a_prompt(db: Any, sent: Callable[[], int]) -> None:
    await db.create_session("s", "cli", system_prompt="P")
    sent()
    await db.update_session_model("s", "m")
    assert sent() == 4, "lock, store, claim and delete the prompt"


async def test_workspaces(db: Any, session: str, sent: Callable[[], int]) -> None:
    sent()
    await db.update_session_cwd(session, "/w", "main")
    assert sent() == 1
    await db.distinct_session_cwds()
    assert sent() == 1
    await db.backfill_repo_roots({"/w": "", "": "/r"})
    assert sent() == 0
    await db.backfill_repo_roots({f"/{number}": "/r" for number in range(50)} | {"/w": "/r"})
    assert sent() == 2, "find and lock, store"
