"""The agent itself, on this store and on its own: the same run leaves the same rows.

The model is a server on the loopback interface; the agent runs in an environment of its own.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import SessionDB
from tests.agents.model_server import Answer, ModelServer, Script
from tests.agents.stage import ORDERS, Stage, comparable, rows_of
from tests.conftest import DRIVERS
from tests.foreign import Environment

# What the agent asks a store for, as far as these runs show it.
SURFACE = set(json.loads((Path(__file__).parents[1] / "fixtures/agent_surface.json").read_text()))
# How it tells the databases apart.
ABSENT = {driver: {"_read"} if driver == "sqlite" else set() for driver in DRIVERS}

BEANS = "gets beans. Beans need sun, and a pole to climb."
FIRST = {"todos": [{"id": "1", "content": "Irrigation", "status": "pending"}]}
ROOF = {"todos": [{"id": "1", "content": "Roof", "status": "pending"}]}
FENCE = {"goal": "Build the fence", "context": "It is wooden."}

SCRIPT: Script = {
    "": [Answer("Summary: five rows of beans.")],
    "Plan the garden": [
        Answer("First a list.", "todo", FIRST, reasoning="A plan needs a list."),
        Answer("", "session_search", {"query": "litres"}),
        Answer("The plan: irrigation, then seeds. 灌溉计划。"),
    ],
    "How much water?": [Answer("Ten litres a day.")],
    "Tell me everything": [Answer("Once upon a time there was a garden", unfinished=True)],
    **{f"Row {n} of the garden": [Answer(f"Row {n} {BEANS}")] for n in range(1, 6)},
    "Count the rows": [
        Answer("", "todo", {"todos": []}, prompt_tokens=100_000),
        Answer("Five rows."),
    ],
    "What did we plan?": [Answer("Irrigation, then seeds.")],
    "Plan the house": [Answer("", "todo", ROOF), Answer("The house gets a roof.")],
    "Delegate the fence": [Answer("", "delegate_task", FENCE), Answer("The fence will stand.")],
    "Build the fence": [Answer("The fence stands.")],
}

# Without the probe, which looks at the machine, the system prompt is the same every time.
PLAIN = "agent: {environment_probe: false}\n"
IN_PLACE = (
    PLAIN
    + """\
model: {context_length: 128000}
compression: {threshold_tokens: 50000, protect_first_n: 1, protect_last_n: 2}
"""
)
ROTATION = IN_PLACE.replace("protect_last_n: 2", "protect_last_n: 2, in_place: false")

RUNS = {
    "tools and streaming": (PLAIN, ["conversation"]),
    "cancelled turn": (PLAIN, ["cancellation"]),
    "compaction in place": (IN_PLACE, ["compaction"]),
    "compaction by rotation": (ROTATION, ["compaction", "resume"]),
    "resume in a new process": (PLAIN, ["conversation", "resume"]),
    "two agents share a store": (PLAIN, ["sharing"]),
    "delegation": (PLAIN, ["delegation"]),
}

# What the agent's own store fills in otherwise (the system prompt names the store), and processes.
OWN = {"id", "display_order", "message_uid", "created_source", "system_prompt_hash", "hash"}
OWN |= {"owner_pid", "owner_started_at"}


@dataclass(frozen=True)
class Theatre:
    """Has agents play scenes, one after the other, on one store."""

    stage: Stage
    model: ModelServer
    folder: Path

    def play(
        self, store: str, location: str, config: str, scenes: list[str], *, at_once: bool = False
    ) -> dict[str, Any]:
        """Return what the store holds, what the model heard and what the agents asked for."""
        home = self.folder / "home"  # the system prompt names it
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        (home / "config.yaml").write_text(config)
        self.model.requests.clear()
        common = {"store": store, "location": location, "url": self.model.url, "home": str(home)}
        plays = [{**common, "scene": scene} for scene in scenes]
        told = self.stage.play(*plays) if at_once else [self.stage.play(p)[0] for p in plays]
        places = dict.fromkeys(ORDERS, location)
        if not location.startswith("postgresql"):  # then the agent's default store has them
            places["async_delegations"] = str(home / "state.db")
        rows = {table: rows_of(place, table) for table, place in places.items()}
        sessions = {row["id"]: f"session {n}" for n, row in enumerate(rows["sessions"])}
        return comparable(
            {
                "rows": rows,
                "heard": sorted(json.dumps(request["messages"]) for request in self.model.requests),
                "streamed": [sorted(one["streamed"]) for one in told],
                "asked": [one["asked"] for one in told],
            },
            {self.model.url: "URL", location: "LOCATION", str(home): "HOME", **sessions},
        )


@pytest.fixture(scope="session")
def stage(async_agent: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The process of this worker in which agents play."""
    stage = Stage(async_agent, tmp_path_factory.mktemp("stage") / "log")
    with stage.process:  # waits for the process, which ends with its input
        yield stage


@pytest.fixture
def theatre(stage: Stage, tmp_path: Path) -> Iterator[Theatre]:
    """A stage with a model that knows the script."""
    with ModelServer(SCRIPT) as model:
        yield Theatre(stage, model, tmp_path)
        model.shutdown()


@pytest.mark.parametrize("run", RUNS)
def test_the_agent_leaves_the_same_in_this_store_and_in_its_own(
    run: str, theatre: Theatre, make_location: Callable[..., str], tmp_path: Path
) -> None:
    config, scenes = RUNS[run]
    expected = theatre.play("hermes_state", str(tmp_path / "own.db"), config, scenes)
    for driver in DRIVERS:
        found = theatre.play("hermes_orm", make_location(driver), config, scenes)
        for table, rows in expected["rows"].items():
            assert differences(rows, found["rows"][table]) == [], (driver, table)
        assert found["heard"] == expected["heard"], driver
        assert found["streamed"] == expected["streamed"], driver
        for asked in found["asked"]:
            assert asked.keys() <= SURFACE, driver
            assert {name for name, is_there in asked.items() if not is_there} == ABSENT[driver]


def differences(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """Describe in which columns that both stores have their rows differ."""
    if len(expected) != len(found):
        return [f"{len(found)} rows instead of {len(expected)}"]
    return [
        f"row {number}, {name}: {actual[name]!r} instead of {row[name]!r}"
        for number, (row, actual) in enumerate(zip(expected, found, strict=True))
        for name in sorted(row.keys() & actual.keys() - OWN)
        if actual[name] != row[name]
    ]


@pytest.mark.parametrize("driver", DRIVERS)
def test_turns_of_two_processes_in_one_session_do_not_mix(
    driver: str, theatre: Theatre, make_location: Callable[..., str]
) -> None:
    location = make_location(driver)
    theatre.play("hermes_orm", location, PLAIN, ["joining"])  # the agent leases what exists
    theatre.play("hermes_orm", location, PLAIN, ["joining", "joining"], at_once=True)
    roles = " ".join(row["role"] for row in rows_of(location, "messages"))
    turns = sorted(turn.split() for turn in roles.split("user")[1:])
    assert turns == [["assistant"]] * 3 + [["assistant", "tool", "assistant"]] * 3


def test_a_store_has_what_the_agent_asks_for() -> None:
    db = SessionDB("postgresql+asyncpg://user@localhost/hermes")
    assert [name for name in SURFACE if not hasattr(db, name)] == []
