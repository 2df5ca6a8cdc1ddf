"""Plays scenes with a real agent on a store: a program for the environment of the agent.

It reads lines of JSON, each a list of plays that run at the same time, each in a process of its
own: {"store", "location", "url", "home", "scene"}. For every play it prints one line: the text that
was streamed and the names that the agent asked the store for, or the error.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from run_agent import AIAgent
from tools.async_delegation import active_count

LONGEST = 300
"""Seconds after which a play that hangs is ended; on a busy machine one takes half a minute."""

streamed: list[str] = []
asked: dict[str, bool] = {}  # name of an attribute: whether the store has it


def recording(store_class: type[Any]) -> type[Any]:
    """Return a store class that notes what the agent asks its instances for."""

    class Recording(store_class):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            caller = sys._getframe(1).f_globals["__name__"]
            if caller.startswith(("hermes_orm", "hermes_state", "__main__")):
                return super().__getattribute__(name)
            asked[name] = False
            value = super().__getattribute__(name)
            asked[name] = True
            return value

    return Recording


def new_agent(db: Any, url: str, session_id: str) -> AIAgent:
    """Return an agent that talks to the model at `url` and keeps its session in `db`."""
    return AIAgent(
        base_url=url,
        api_key="none",
        provider="custom",
        model="scripted",
        session_db=db,
        session_id=session_id,
        platform="cli",
        quiet_mode=True,
        skip_context_files=True,
        skip_memory=True,
        skip_background_review=True,
        enabled_toolsets=["todo", "session_search", "delegation"],
        max_iterations=8,
        stream_delta_callback=lambda text: streamed.append(text or "\n"),
    )


async def turns(agent: AIAgent, *prompts: str, history: list[Any] | None = None) -> None:
    """Have an agent answer prompts one after the other, as a host does."""
    for prompt in prompts:
        result = await agent.run_conversation(prompt, conversation_history=history)
        history = result["messages"]


async def conversation(db: Any, url: str) -> None:
    """A conversation in which the agent searches an older one."""
    async with new_agent(db, url, "orchard") as agent:
        await turns(agent, "How much water?")
    async with new_agent(db, url, "garden") as agent:
        await turns(agent, "Plan the garden", "How much water?")


async def cancellation(db: Any, url: str) -> None:
    """Three turns; the second one is cancelled while the model speaks."""
    async with new_agent(db, url, "garden") as agent:
        await turns(agent, "How much water?")
        heard = len(streamed)
        turn = asyncio.create_task(agent.run_conversation("Tell me everything"))
        while len(streamed) == heard:
            await asyncio.sleep(0.01)
        turn.cancel()
        await asyncio.wait([turn])
        assert turn.cancelled()
        del streamed[heard:]
        await turns(agent, "Plan the garden")


async def compaction(db: Any, url: str) -> None:
    """So many turns that the agent compacts its context."""
    async with new_agent(db, url, "garden") as agent:
        rows = [f"Row {number} of the garden" for number in range(1, 6)]
        await turns(agent, *rows, "Count the rows", "How much water?")


async def resume(db: Any, url: str) -> None:
    """A turn that continues the stored conversation."""
    session_id = await db.resolve_resume_session_id("garden")
    await db.reopen_session(session_id)
    history = await db.get_messages_as_conversation(session_id)
    async with new_agent(db, url, session_id) as agent:
        await turns(agent, "What did we plan?", history=history)


async def sharing(db: Any, url: str) -> None:
    """Two agents at the same time."""
    async with new_agent(db, url, "garden") as one, new_agent(db, url, "house") as other:
        await asyncio.gather(turns(one, "Plan the garden"), turns(other, "Plan the house"))


async def joining(db: Any, url: str) -> None:
    """Turns in a session that other processes write to as well."""
    async with new_agent(db, url, "garden") as agent:
        await turns(agent, "How much water?", "Plan the house")


async def delegation(db: Any, url: str) -> None:
    """A turn that has a part of its work done by a subagent."""
    async with new_agent(db, url, "garden") as agent:
        await turns(agent, "Delegate the fence")
        async with asyncio.timeout(60):
            while active_count():  # the subagent works in the background
                await asyncio.sleep(0.05)


SCENES: dict[str, Callable[[Any, str], Coroutine[Any, Any, None]]] = {
    scene.__name__: scene
    for scene in (conversation, cancellation, compaction, resume, sharing, joining, delegation)
}


async def play(store: str, location: str, url: str, scene: str) -> None:
    """Open the store, play the scene, close the store."""
    db = recording(importlib.import_module(store).SessionDB)(location)
    try:
        await SCENES[scene](db, url)
    finally:
        await db.close()


def played(home: str, **arguments: str) -> dict[str, Any]:
    """Return what there is to say about a play."""
    os.environ["HERMES_HOME"] = home
    os.chdir(home)  # a folder that tells the agent nothing
    try:
        asyncio.run(play(**arguments))
    except Exception:  # noqa: BLE001 the test shows it
        return {"error": traceback.format_exc()}
    return {"streamed": "".join(streamed), "asked": asked}


def main() -> None:
    """Have every play take place in a child process; the agent was imported here, once."""
    answers = os.dup(1)
    os.dup2(2, 1)  # the agent prints, too
    for line in sys.stdin:
        children = []
        for arguments in json.loads(line):
            if (child := os.fork()) == 0:
                signal.alarm(LONGEST)
                answer = json.dumps(played(**arguments))
                os.write(answers, f"{answer}\n".encode())
                os._exit(0)
            children.append(child)
        for child in children:
            if status := os.waitpid(child, 0)[1]:
                answer = json.dumps({"error": f"ended with status {status}"})
                os.write(answers, f"{answer}\n".encode())


if __name__ == "__main__":
    main()
