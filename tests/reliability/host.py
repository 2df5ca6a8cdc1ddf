"""What a host does all day with its store: sessions begin, are worked on, searched, and go."""

import asyncio
import contextlib
import sqlite3
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from hermes_orm import SessionDB
from tests.contract.turns import assistant, tool, user

KEPT_SESSIONS: Final = 4
PRUNED: Final = "cron"
WORDS: Final = ["rosemary", "tomatoes", "迷迭香很香", "naïve", "x_1.py", "100%", "🌱"]


class Worker:
    """A task of the host with a few sessions of its own; the oldest goes when another begins.

    Nothing that it does fails, whatever the others do meanwhile.
    """

    def __init__(self, db: SessionDB, name: str) -> None:
        self._db: Any = db
        self._name = name
        self._random = Random(name)
        self._sessions: deque[str] = deque()
        self._begun = 0

    async def round(self) -> int:
        """Do everything that there is, some of it often, in any order; return how many things."""
        todo: list[Callable[[], Awaitable[None]]] = [
            *[self._append] * 12,
            *[self._take_turn] * 4,
            *[self._read] * 6,
            *[self._list] * 3,
            *[self._search] * 3,
            *[self._count_tokens] * 3,
            *[self._entitle] * 2,
            *[self._begin] * 2,
            self._undo,
            self._compact,
            self._carry_on,
            self._export_and_import,
            self._commit_together,
            self._open_another,
            self._keep_house,
            self._give_up,
        ]
        self._random.shuffle(todo)
        for act in (self._begin, *todo):
            await act()
        return len(todo) + 1

    @property
    def _session(self) -> str:
        return self._random.choice(self._sessions)

    def _text(self) -> str:
        words = " ".join(self._random.choices(WORDS, k=self._random.choice([3, 10, 200])))
        return f"{self._name} {words}"

    def _new_id(self) -> str:
        self._begun += 1
        return f"{self._name}-{self._begun}"

    async def _began(self, session_id: str) -> None:
        self._sessions.append(session_id)
        while len(self._sessions) > KEPT_SESSIONS:
            await self._end(self._sessions.popleft())

    async def _begin(self) -> None:
        session_id = self._new_id()
        source = self._random.choice(["cli", "telegram", PRUNED])
        await self._db.create_session(session_id, source, model="m", system_prompt=self._name)
        await self._db.append_message(session_id, "user", self._text())
        await self._began(session_id)

    async def _end(self, session_id: str) -> None:
        session = await self._db.get_session(session_id)
        if session["source"] == PRUNED:
            await self._db.end_session(session_id, "cron_complete")
        elif self._random.random() < 0.5:
            assert await self._db.delete_session(session_id)
        else:
            assert await self._db.delete_sessions([session_id]) == 1

    async def _append(self) -> None:
        session_id = self._session
        await self._db.append_message(session_id, "user", self._text())
        await self._db.queue_token_counts(session_id, input_tokens=3, model="m")

    async def _take_turn(self) -> None:
        session_id, holder = self._session, f"{self._name} turn"
        lease = {"turn_lease_holder": holder}
        assert await self._db.acquire_session_turn_lease(session_id, holder)
        await self._db.append_message(session_id, "user", self._text(), **lease)
        rows = [assistant(None, "c"), tool(self._text(), "c"), assistant(self._text())]
        await self._db.append_messages_batch(session_id, rows, **lease)
        with contextlib.suppress(sqlite3.OperationalError):  # it waits half a second only
            await self._db.touch_session_activity(session_id, description="answers")
        await self._db.release_session_turn_lease(session_id, holder)

    async def _read(self) -> None:
        session_id = self._session
        await self._db.get_messages(session_id, limit=20, latest=True)
        await self._db.get_messages_as_conversation(session_id)
        await self._db.get_resume_conversations(session_id)

    async def _list(self) -> None:
        await self._db.list_sessions_rich(limit=20, order_by_last_active=True)
        await self._db.list_sessions_rich(limit=5, source="cli", include_archived=True)
        await self._db.search_sessions_by_id(self._name)
        await self._db.session_count()

    async def _search(self) -> None:
        word = self._random.choice(WORDS)
        await self._db.search_messages(f'"{word}"', limit=10)
        await self._db.search_messages(f"{self._name} {word}", limit=10)

    async def _count_tokens(self) -> None:
        session_id = self._session
        await self._db.update_token_counts(session_id, input_tokens=5, model="m")
        await self._db.record_auxiliary_usage(session_id, "title", input_tokens=2, model="m")
        assert await self._db.usage_statistics(by="model")

    async def _entitle(self) -> None:
        session_id = self._session
        title = await self._db.get_next_title_in_lineage(self._name)
        assert await self._db.set_session_title(session_id, title)
        assert await self._db.resolve_session_by_title(title)

    async def _undo(self) -> None:
        session_id = self._session
        row_id = await self._db.latest_user_message_row_id(session_id)
        if row_id is not None:
            await self._db.rewind_to_message(session_id, row_id)
            if self._random.random() < 0.5:
                await self._db.restore_rewound(session_id, row_id)
        await self._db.append_message(session_id, "user", self._text())

    async def _compact(self) -> None:
        session_id, holder = self._session, f"{self._name} compacts"
        watermark = await self._db.get_active_message_watermark(session_id)
        assert await self._db.try_acquire_compression_lock(session_id, holder)
        summary = [user(self._text())]
        await self._db.archive_and_compact(
            session_id, summary, watermark=watermark, lock_holder=holder
        )
        await self._db.release_compression_lock(session_id, holder)

    async def _carry_on(self) -> None:
        """Have a child session carry on the latest one."""
        parent, child = self._sessions.pop(), self._new_id()
        holder = f"{self._name} carries on"
        assert await self._db.try_acquire_compression_lock(parent, holder)
        await self._db.publish_compression_child(
            parent_session_id=parent,
            child_session_id=child,
            source="cli",
            messages=[user(self._text())],
            compression_lock_holder=holder,
        )
        await self._db.release_compression_lock(parent, holder)
        await self._db.get_compression_tip(parent)
        await self._db.delete_session(parent)
        await self._began(child)

    async def _export_and_import(self) -> None:
        exported = await self._db.export_session(self._session)
        session_id = self._new_id()
        copy = {**exported, "id": session_id, "title": None, "parent_session_id": None}
        assert (await self._db.import_sessions([copy]))["imported"] == 1
        await self._began(session_id)
        async with contextlib.aclosing(self._db.iter_export("cli")) as exports:
            async for _ in exports:
                if self._random.random() < 0.2:
                    break

    async def _commit_together(self) -> None:
        session_id = self._session
        async with self._db.transaction() as unit:
            await unit.append_message(session_id, "user", self._text())
            await unit.set_meta(self._name, session_id)
            assert await unit.get_meta(self._name) == session_id

    async def _open_another(self) -> None:
        async with SessionDB(self._db.database.location, read_only=True) as reader:
            assert await reader.get_session(self._session)
            await reader.search_messages(self._name, limit=3)

    async def _keep_house(self) -> None:
        await self._db.prune_sessions(older_than_days=None, source=PRUNED)
        await self._db.register_backend_heartbeat(backend_id=self._name, pid=1, started_at=1)
        await self._db.save_gateway_routing_entry(self._name, "{}")
        await self._db.list_gateway_sessions()

    async def _give_up(self) -> None:
        """Cancel an append at any moment."""
        session_id = self._session
        task = asyncio.create_task(self._db.append_message(session_id, "user", self._text()))
        await asyncio.sleep(self._random.random() / 200)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


async def work(location: str, name: str, tasks: int, rounds: int) -> int:
    """Have a store's workers do some rounds each; return how many things they have done."""
    done = 0
    async with SessionDB(location) as db:
        workers = [Worker(db, f"{name}{number}") for number in range(tasks)]
        for _ in range(rounds):
            done += sum(await asyncio.gather(*(worker.round() for worker in workers)))
    return done


if __name__ == "__main__":
    location, name, *numbers = sys.argv[1:]
    sys.stdout.write(f"{asyncio.run(work(location, name, *map(int, numbers)))}\n")
