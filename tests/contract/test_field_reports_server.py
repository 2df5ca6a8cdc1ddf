"""Field reports N (PostgreSQL and its drivers) and O (async life cycle), on every driver.

N10, N13, X15: tests/dialects/postgresql; N2: reliability/test_pooler; N11: processes; N8 is
documented; O6: test_field_reports_messages.
"""

import asyncio
import gc
import json
import os
import random
import string
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import exc

from hermes_orm import SessionDB

ROOT = Path(__file__).parents[2]


async def test_plans_of_a_changed_table_are_made_anew(db: Any, raw: Any) -> None:  # N1
    await db.create_session("s", "cli")
    await db.append_message("s", "user", "before")
    for number in range(6):  # psycopg prepares a statement that it has met five times
        await db.get_session("s")
        await db.get_messages("s")
        if number == 4:
            await raw.execute("ALTER TABLE sessions ADD COLUMN added_elsewhere TEXT")
            await raw.execute("ALTER TABLE messages ADD COLUMN added_elsewhere TEXT")
    assert (await db.get_session("s"))["id"] == "s"
    await db.append_message("s", "user", "after")
    assert [row["content"] for row in await db.get_messages("s")] == ["before", "after"]


async def test_a_key_is_taken_or_refused_alike_on_both_databases(db: Any) -> None:  # N3
    letters = random.Random(3).choices(string.ascii_letters, k=9000)
    most, long = "".join(letters[:1024]), "".join(letters)
    await db.create_session(most[:300], "cli")
    await db.create_session("s", most, session_key=most, cwd=long)
    await db.append_message("s", "user", "x", platform_message_id=most)
    await db.set_meta(most, "v")
    assert await db.has_platform_message_id("s", most)
    assert await db.get_meta(most) == "v"
    assert (await db.get_session(most[:300]))["source"] == "cli"
    refused: list[Callable[[], Any]] = [
        lambda: db.create_session(long, "cli"),
        lambda: db.ensure_session(long, "cli"),
        lambda: db.create_session("t", long),
        lambda: db.create_session("t", "cli", session_key=long),
        lambda: db.create_session("t", "cli", user_id=long),
        lambda: db.append_message("s", "user", "x", platform_message_id=long),
        lambda: db.set_meta(long, "v"),
        lambda: db.record_gateway_session_peer(
            "s", source="telegram", user_id="u", session_key=long
        ),
        lambda: db.record_auxiliary_usage("s", task=long, model="m", input_tokens=1),
    ]
    for call in refused:
        with pytest.raises(ValueError, match=r"at most 1024 bytes.*9000"):
            await call()
    result = await db.import_sessions([{"id": long, "source": "cli", "messages": []}])
    assert [error["index"] for error in result["errors"]] == [0]
    assert await db.get_session(long) is None
    assert await db.session_count() == 2


async def test_keys_of_one_index_are_taken_or_refused_together(db: Any) -> None:  # N3
    letters = random.Random(4).choices(string.ascii_letters, k=1000)
    key = "".join(letters)
    await db.create_session("s", "cli", user_id=key, chat_id=key)
    peer = {"source": "telegram", "session_key": "k", "user_id": key, "chat_id": key}
    topic = {"chat_id": key, "thread_id": key, "user_id": "u", "profile_name": key}
    usage = {"model": key, "billing_provider": key, "billing_base_url": key, "input_tokens": 1}
    refused: list[Callable[[], Any]] = [
        lambda: db.create_session("t", "cli", user_id=key, chat_id=key, thread_id=key),
        lambda: db.record_gateway_session_peer("t", **peer, thread_id=key),
        lambda: db.update_token_counts("t", **usage),
        lambda: db.record_auxiliary_usage("t", "title", **usage),
        lambda: db.bind_telegram_topic(**topic, session_key="k", session_id="s"),
    ]
    for call in refused:
        with pytest.raises(ValueError, match=r"at most 2600 bytes together.*30\d\d"):
            await call()
    for call in (
        lambda: db.create_session("t", "cli", model=key * 9),
        lambda: db.update_session_model("s", key * 9),
        lambda: db.update_session_meta("s", None, key * 9),
        lambda: db.update_session_billing_route("s", provider=key * 9, base_url=None),
    ):
        with pytest.raises(ValueError, match=r"at most 1024 bytes.*9000"):
            await call()
    assert await db.session_count() == 1


async def test_a_peer_without_a_source_is_refused(db: Any) -> None:
    for session_id in ("s", "s"):
        with pytest.raises(ValueError, match="source cannot be None"):
            await db.record_gateway_session_peer(session_id, source=None, session_key="k")
        await db.create_session("s", "cli")
    assert (await db.get_session("s"))["source"] == "cli"


async def test_a_batch_has_ascending_ids_in_list_order(db: Any) -> None:  # N4
    await db.create_session("s", "cli")
    batch = [{"role": "user", "content": str(number)} for number in range(2500)]
    assert await db.append_messages_batch("s", batch) == 2500
    rows = await db.get_messages("s")
    assert [row["content"] for row in rows] == [str(number) for number in range(2500)]
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)


async def test_no_message_becomes_visible_behind_a_later_one(
    db: Any, open_store: Callable[..., Any]
) -> None:  # N5
    await db.create_session("s", "cli")
    other = open_store()
    async with db.transaction() as unit:
        first = await unit.append_message("s", "user", "first")
        later = asyncio.create_task(other.append_message("s", "user", "second"))
        await asyncio.sleep(0.1)
        assert not later.done()
        assert await other.get_messages("s") == []
    assert first < await later
    assert [row["content"] for row in await db.get_messages("s", after_id=first)] == ["second"]


async def test_a_failed_call_spoils_no_other(db: Any, raw: Any) -> None:  # N6
    await db.create_session("s", "cli")

    async def mixed(number: int) -> None:
        if number % 2:
            await db.append_message("s", "user", "works")
        else:
            with pytest.raises((ValueError, exc.IntegrityError)):
                await db.append_message("unknown", "user", "fails")

    await asyncio.gather(*map(mixed, range(60)))
    assert await db.message_count("s") == len(await db.get_messages("s")) == 30
    if raw.is_postgres:
        idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        assert await raw.fetch(f"{idle} AND state LIKE 'idle in transaction%'") == [(0,)]


async def test_results_are_plain_and_outlive_their_store(db: Any) -> None:  # N7
    await db.create_session("s", "cli", model_config={"a": 1})
    await db.append_message("s", "user", "hello")
    found = [
        await db.get_session("s"),
        await db.get_messages("s"),
        await db.list_sessions_rich(),
        await db.search_messages("hello"),
    ]
    await db.close()
    assert json.loads(await asyncio.to_thread(json.dumps, found)) == found


async def test_many_tasks_share_few_connections(location: str, hermes_home: Path) -> None:  # N9
    hermes_home.mkdir()
    (hermes_home / "config.yaml").write_text("database: {postgres: {pool_size: 2}}")
    async with SessionDB(location) as db:
        await db.create_session("s", "cli")

        async def call(number: int) -> None:
            await db.append_message("s", "user", str(number))
            await db.get_session("s")

        await asyncio.wait_for(asyncio.gather(*map(call, range(60))), 60)
        assert await db.message_count("s") == 60


async def test_arguments_of_other_types_mean_the_same_everywhere(db: Any) -> None:  # N12
    await db.create_session("s", "cli")
    await db.append_message("s", "user", "x", tool_name=7, token_count="12", observed=True)
    await db.set_meta("k", 5)
    await db.set_session_hidden("s", 1)
    row = (await db.get_messages("s"))[0]
    assert (row["tool_name"], row["token_count"], bool(row["observed"])) == ("7", 12, True)
    assert await db.get_meta("k") == "5"


async def test_a_cancelled_append_is_there_or_absent(db: Any) -> None:  # O1
    await db.create_session("s", "cli")
    for number in range(40):
        task = asyncio.create_task(db.append_message("s", "user", str(number)))
        await asyncio.sleep(number % 8 / 2000)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(db.append_message("s", "user", "normal"), 15)
    rows = await db.get_messages("s")
    assert (await db.get_session("s"))["message_count"] == len(rows)
    assert rows[-1]["content"] == "normal"


async def test_another_loop_gets_one_clear_error_and_disturbs_nothing(db: Any) -> None:  # O3
    await db.set_meta("k", "v")

    def elsewhere() -> Any:
        return asyncio.run(db.get_meta("k"))

    with pytest.raises(RuntimeError, match="event loop"):
        await asyncio.wait_for(asyncio.to_thread(elsewhere), 10)
    assert await db.get_meta("k") == "v"
    await db.set_meta("k", "w")


SCRIPTS = {
    "O2 no close": "import asyncio; from hermes_orm import SessionDB\n"
    "async def main():\n    await SessionDB({0!r}).set_meta('k', 'v')\nasyncio.run(main())",
    "O4 nothing happens before the first call": "from hermes_orm import SessionDB\n"
    "SessionDB('/no/such/folder/x.db'); SessionDB('postgresql+asyncpg://u@192.0.2.1/d')",
    "O7 a loop for each use": "import asyncio, gc; from hermes_orm import SessionDB\n"
    "async def main(n):\n    async with SessionDB({0!r}) as db:\n"
    "        await db.set_meta('k', str(n))\n"
    "for n in range(20):\n    asyncio.run(main(n)); gc.collect()",
}


async def test_scripts_end_by_themselves_and_say_nothing(location: str) -> None:  # O2, O4, O7
    for name, script in SCRIPTS.items():
        strict = [] if name.startswith("O2") else ["-W", "error"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *strict,
            "-c",
            script.format(location),
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
        )
        _, told = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, (name, told)
        if strict:
            noise = [line for line in told.decode().splitlines() if "WAL-reset" not in line]
            assert noise == [], name


async def test_nothing_stays_open(location: str) -> None:  # O5
    async def use() -> tuple[int, int]:
        async with SessionDB(location) as db:
            await db.create_session("s", "cli")
            await db.append_message("s", "user", "words")
            await db.search_messages("words")
            await db.optimize_fts()
            await asyncio.gather(*(db.get_session("s") for _ in range(8)))
        await asyncio.sleep(0)
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    assert await use() == await use()
