"""Where agents play: a process in their environment, a model, and what a store holds afterwards."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.foreign import Environment
from tests.raw import Raw

DRIVER = Path(__file__).with_name("driver.py")

# Rows of each table in an order that two agents at work in one store don't change.
ORDERS = {
    "sessions": "id",
    "messages": "session_id, id",
    "session_model_usage": "session_id, model, task",
    "system_prompts": "length(prompt)",
    "compression_locks": "1",
    "session_turn_leases": "1",
    "async_delegations": "1",
}

# What differs between two runs of the same agent: times, and names that it makes up.
VARIABLE = {
    r"\b1[78]\d{8}(\.\d+)?": "0",
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?": "TIME",
    r"([A-Z]\w+day, )?[A-Z][a-z]+ \d\d?, \d{4}( at \d\d:\d\d [AP]M)?": "DATE",
    r"\bdeleg_[0-9a-f]+": "DELEGATION",
    r'(seconds\\*": )\d+(\.\d+)?': r"\g<1>0",
}


class Stage:
    """A process in which the agent is imported; every play takes place in a child of it."""

    def __init__(self, environment: Environment, log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = environment.start(DRIVER, stdin=subprocess.PIPE, stderr=errors)

    def play(self, *plays: Mapping[str, str]) -> list[dict[str, Any]]:
        """Have plays run at the same time; return what they tell."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(plays) + "\n")
        self.process.stdin.flush()
        answers = [json.loads(self.process.stdout.readline() or "{}") for _ in plays]
        for answer in answers:
            assert "asked" in answer, f"{answer.get('error')}\n{self.log.read_text()}"
        return answers


def rows_of(location: str, table: str) -> list[dict[str, Any]]:
    """Return what a table of a store holds."""
    with Raw(location).engine.connect() as connection:
        query = f"SELECT * FROM {table} ORDER BY {ORDERS[table]}"
        return [dict(row) for row in connection.exec_driver_sql(query).mappings()]


def comparable(seen: dict[str, Any], variable: Mapping[str, str]) -> dict[str, Any]:
    """Return plain data with everything replaced that no two runs have in common."""
    text = json.dumps(seen)
    for found, name in variable.items():
        text = text.replace(found, name)
    for pattern, name in VARIABLE.items():
        text = re.sub(pattern, name, text)
    replaced: dict[str, Any] = json.loads(text)
    return replaced
