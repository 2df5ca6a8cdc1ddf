"""`model_config`: patched, locked, read by key; whatever text it holds."""

import asyncio
import json
import logging
from typing import Any

import pytest

MALFORMED = ["{bad", "", "[1]", '{"a": NaN}', '"text"', "nul"]


async def config_of(db: Any, session_id: str = "s") -> Any:
    return (await db.get_session(session_id))["model_config"]


async def store(raw: Any, text: str | None) -> None:
    await raw.execute("UPDATE sessions SET model_config = ?", text)


# Example 14 and 15: update_session_meta, update_session_model


async def test_meta_is_stored_verbatim(db: Any, session: str) -> None:
    for text in ('{"k": 1}', '{"k":1}', "{bad", "", None, "[1]"):
        await db.update_session_meta(session, text)
        assert await config_of(db) == text


async def test_meta_changes_the_model_only_when_it_is_given(db: Any) -> None:
    await db.create_session("s", "cli", model="a", system_prompt="P")
    await db.update_session_meta("s", '{"k": 1}')
    row = await db.get_session("s")
    assert (row["model"], row["model_config"], row["system_prompt"]) == ("a", '{"k": 1}', "P")
    await db.update_session_meta("s", None, model="")
    row = await db.get_session("s")
    assert (row["model"], row["model_config"]) == ("", None)


@pytest.mark.parametrize("config", [{"a": 1}, ["a"], 1, b"{}"])
async def test_meta_that_is_no_text_is_refused(db: Any, session: str, config: Any) -> None:
    with pytest.raises(TypeError, match="model_config_json"):
        await db.update_session_meta(session, config)
    assert await config_of(db) is None


async def test_switching_the_model_drops_the_lock_and_compacts_the_config(db: Any) -> None:
    await db.create_session("s", "cli", system_prompt="P")
    text = '{"custom":"kept","browser_model_lock":{"model":"old"}}'
    await db.update_session_meta("s", text, model="b")
    await db.update_session_model("s", "c")
    row = await db.get_session("s")
    assert (row["model"], row["model_config"]) == ("c", '{"custom":"kept"}')
    assert (row["system_prompt"], row["system_prompt_hash"]) == (None, None)


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        (None, None),
        ('{ "a": {"browser_model_lock": 1}, "ü": "\\ud800" }',
         '{"a":{"browser_model_lock":1},"\\u00fc":"\\ud800"}'),
        ('{"browser_model_lock": null}', "{}"),
        *((text, text) for text in MALFORMED),
    ],
)  # fmt: skip
async def test_switching_keeps_what_is_no_json_object(
    db: Any, raw: Any, session: str, stored: str | None, kept: str | None
) -> None:
    await store(raw, stored)
    await db.update_session_model(session, None)
    assert await config_of(db) == kept
    assert (await db.get_session(session))["model"] is None


# Example 16: update_session_runtime_lock


async def test_lock_is_added_to_the_config(db: Any, clock: Any) -> None:
    await db.create_session("s", "cli", model="a", model_config={"x": 1}, system_prompt="P")
    await db.update_session_runtime_lock("s", provider="pp", confirmed=1)
    row = await db.get_session("s")
    assert json.loads(row["model_config"]) == {
        "x": 1,
        "browser_model_lock": {
            "provider": "pp",
            "model": "",
            "model_options": {},
            "route_source": "",
            "confirmed": True,
            "updated_at": clock(),
        },
    }
    assert json.dumps(json.loads(row["model_config"])) == row["model_config"]
    assert (row["model"], row["system_prompt"]) == ("a", None)


async def test_lock_replaces_the_one_before(db: Any, session: str, clock: Any) -> None:
    options = {"effort": "high", "ü": ["\ud83d", float("nan")]}
    await db.update_session_runtime_lock(
        session, model="m", provider="p", model_options=options, route_source="user"
    )
    lock = json.loads(await config_of(db))["browser_model_lock"]
    assert (await db.get_session(session))["model"] == "m"
    assert lock["model_options"] == {"effort": "high", "ü": ["\ud83d", None]}
    assert (lock["route_source"], lock["confirmed"]) == ("user", False)
    await db.update_session_runtime_lock(session, model="")
    lock = json.loads(await config_of(db))["browser_model_lock"]
    assert (await db.get_session(session))["model"] == ""
    assert (lock["provider"], lock["route_source"], lock["model_options"]) == ("", "", {})


@pytest.mark.parametrize("text", [None, *MALFORMED])
async def test_lock_replaces_a_malformed_config(
    db: Any, raw: Any, session: str, text: str | None, caplog: Any
) -> None:
    await store(raw, text)
    await db.update_session_runtime_lock(session, provider="p")
    assert json.loads(await config_of(db)).keys() == {"browser_model_lock"}
    assert len(warnings(caplog)) == (text is not None)


async def test_options_that_are_no_json_change_nothing(db: Any) -> None:
    await db.create_session("s", "cli", model="a", model_config={"x": 1}, system_prompt="P")
    before = await db.get_session("s")
    with pytest.raises(TypeError):
        await db.update_session_runtime_lock("s", model="b", model_options={"f": object()})
    assert await db.get_session("s") == before


# Example 18 and 86: patch_session_model_config


@pytest.mark.parametrize(
    ("stored", "patch", "text"),
    [
        ('{"a":1,"b":{"x":1}}', {"a": None, "b": {"y": 2}, "c": 0}, '{"b": {"y": 2}, "c": 0}'),
        ('{"a":1}', {}, '{"a": 1}'),
        ('{"a":1}', {"a": None}, "{}"),
        ('{"a":1}', {"b": None}, '{"a": 1}'),
        (None, {"a": "", "b": {}, "c": False}, '{"a": "", "b": {}, "c": false}'),
        (None, {}, "{}"),
        ('{"n": null}', {"a": 1}, '{"n": null, "a": 1}'),
        (None, {"a": float("inf"), "b": [None]}, '{"a": null, "b": [null]}'),
        (None, {"a": "\ud83d\0ü"}, '{"a": "\\ud83d\\u0000\\u00fc"}'),
    ],
)
async def test_patch_merges_top_level_keys(
    db: Any, raw: Any, session: str, stored: str | None, patch: Any, text: str
) -> None:
    await store(raw, stored)
    await db.patch_session_model_config(session, patch)
    assert await config_of(db) == text


def warnings(caplog: Any) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and record.name.startswith("hermes_orm")
    ]


@pytest.mark.parametrize("text", MALFORMED)
async def test_patch_repairs_malformed_text_with_one_warning(
    db: Any, raw: Any, session: str, text: str, caplog: Any
) -> None:
    await store(raw, text)
    await db.patch_session_model_config(session, {"k": 1})
    assert await config_of(db) == '{"k": 1}'
    (warning,) = warnings(caplog)
    assert "'s'" in warning and "sessions" in warning
    assert not text or text not in warning
    await db.patch_session_model_config(session, {"k": 2})
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("patch", [None, [], [("a", 1)], '{"a": 1}', 1])
async def test_patch_that_is_no_dict_does_nothing(db: Any, session: str, patch: Any) -> None:
    await db.patch_session_model_config(session, patch)
    assert await config_of(db) is None


async def test_patch_that_is_no_json_changes_nothing(db: Any, session: str) -> None:
    await db.patch_session_model_config(session, {"a": 1})
    circular: dict[str, Any] = {}
    circular["self"] = circular
    for value in (object(), {1, 2}, circular):
        with pytest.raises(TypeError):
            await db.patch_session_model_config(session, {"a": None, "b": value})
    assert await config_of(db) == '{"a": 1}'


async def test_parallel_patches_of_two_stores_all_survive(db: Any, open_store: Any) -> None:
    await db.create_session("s", "cli")
    stores = [db, open_store()]
    await asyncio.gather(
        *(stores[n % 2].patch_session_model_config("s", {f"k{n}": n}) for n in range(20))
    )
    assert json.loads(await config_of(db)) == {f"k{n}": n for n in range(20)}


# Example 19: get_session_model_config_value


async def test_value_of_a_key(db: Any, raw: Any, session: str) -> None:
    get = db.get_session_model_config_value
    await store(raw, '{"n": null, "a": {"b": [1]}, "f": false}')
    assert await get(session, "n", "d") is None
    assert await get(session, "a") == {"b": [1]}
    assert await get(session, "f", "d") is False
    assert await get(session, "q", "d") == "d"
    assert await get(session, "q") is None
    for unknown in ("nope", "", None, "a\0", "a\ud800"):
        assert await get(unknown, "n", default="d") == "d"


@pytest.mark.parametrize("text", [None, *MALFORMED])
async def test_malformed_config_has_no_keys(
    db: Any, raw: Any, session: str, text: str | None
) -> None:
    await store(raw, text)
    assert await db.get_session_model_config_value(session, "a", "d") == "d"


# All of them


@pytest.mark.parametrize("unknown", ["nope", None, "", "a\0", "a\ud800"])
async def test_unknown_sessions_are_no_errors(db: Any, session: str, unknown: Any) -> None:
    before = await db.get_session(session)
    assert await db.update_session_meta(unknown, "{}") is None
    assert await db.update_session_model(unknown, "m") is None
    assert await db.update_session_runtime_lock(unknown, model="m") is None
    assert await db.update_session_billing_route(unknown, provider="p", base_url="u") is None
    assert await db.patch_session_model_config(unknown, {"a": 1}) is None
    assert await db.update_system_prompt(unknown, "P") is None
    assert await db.get_session(session) == before and await db.session_count() == 1
