"""`hermes-orm sessions …` and `stats`, as an operator uses them, on both databases."""

import asyncio
import inspect
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_orm import PruneFilters, SessionDB, clock
from hermes_orm.cli import filters
from tests.cli.commands import result, run
from tests.conftest import DRIVERS
from tests.contract.turns import assistant, user

DAY = 86_400


async def fill(location: str, now: Any) -> None:
    """A chain `a-root` to `a-tip`, one old, one pinned and one open session, and a delegate."""
    async with SessionDB(location) as db:
        now.advance(-100 * DAY)
        await db.create_session("old-1", "cron", model="small")
        await db.append_message("old-1", "user", "long ago")
        await db.end_session("old-1", "cron_complete")
        await db.create_session("old-2", "cli")
        await db.append_message("old-2", "user", "\x1b[2Jescape")
        await db.end_session("old-2", "done")
        await db.set_session_pinned("old-2", True)
        now.advance(DAY)
        await db.create_session("old-3", "cron")
        now.advance(89 * DAY)
        await db.create_session("a-root", "cli", model="big", cwd="/w/garden")
        await db.append_messages_batch(
            "a-root", [user("Is the cistern full? 蓄水池"), assistant("I look.", "c1")]
        )
        await db.append_message("a-root", "tool", "water\n" * 50, tool_call_id="c1")
        await db.end_session("a-root", "compression")
        now.advance(10 * DAY)
        await db.create_session("a-tip", "cli", model="big", parent_session_id="a-root")
        await db.append_message("a-tip", "assistant", "The cistern is full.")
        await db.set_session_title("a-tip", "Cistern")
        await db.update_token_counts("a-tip", 1000, 50, "big", estimated_cost_usd=0.25)
        await db.create_session(
            "worker", "cli", parent_session_id="a-tip", model_config={"_delegate_from": "a-tip"}
        )


@pytest.fixture(params=DRIVERS[:2])
def store(
    request: pytest.FixtureRequest,
    make_location: Callable[..., str],
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    location = make_location(request.param)
    asyncio.run(fill(location, clock))
    monkeypatch.setenv("HERMES_DATABASE_URL", location)
    return location


def ids(*arguments: str) -> list[str]:
    found = result("sessions", *arguments)["sessions"]
    return [session["id"] for session in found]


def test_sessions_are_found_and_read(store: str) -> None:
    assert ids("list") == ["a-tip", "old-3", "old-2", "old-1"]
    assert ids("list", "-n", "2") == ["a-tip", "old-3"]
    assert result("sessions", "list", "-n", "2")["more"]
    assert ids("list", "--source", "cron", "--offset", "1") == ["old-1"]
    assert ids("list", "--query", "cistern") == ["a-tip"]
    assert ids("list", "--workspace", "/w") == ["a-tip"]
    assert ids("list", "--workspace", "/w/gard") == []
    assert set(ids("list", "--all", "--by", "start")) >= {"worker", "a-root"}
    listed = run("sessions", "list")
    assert "Cistern" in listed and "long ago" in listed and "open" in listed
    assert "\x1b" not in listed

    for name in ("a-tip", "a-t", "Cistern"):
        assert ids("show", name) == ["a-tip"]
    assert ids("show", "a-tip", "--lineage") == ["a-root", "a-tip"]
    shown = run("sessions", "show", "a-root")
    assert "more characters" in shown and "蓄水池" in shown and "compression" in shown
    assert "more characters" not in run("sessions", "show", "a-root", "--full")
    assert "cistern full?" not in run("sessions", "show", "a-root", "--last", "1")
    assert "\x1b" not in run("sessions", "show", "old-2")

    (hit, *_) = result("sessions", "search", "cistern", "--sort", "oldest")["hits"]
    assert hit["session_id"] == "a-root"
    around = run("sessions", "show", hit["session_id"], "--around", str(hit["id"]))
    assert "I look." in around
    found = run("sessions", "search", "cistern OR pump")
    assert "cistern" in found and ">>>" not in found and "--around" in found
    assert "Nothing" in run("sessions", "search", "helicopter")
    assert "begins several ids: " in run("sessions", "show", "a-", code=1)
    assert "'zz'" in run("sessions", "show", "zz", code=1)
    assert "such message" in run("sessions", "show", "a-tip", "--around", "1", code=1)


def test_pruning_deletes_what_its_dry_run_shows(store: str) -> None:
    before = ids("list", "--all")
    dry = result("sessions", "prune", "--dry-run")
    assert [s["id"] for s in dry["sessions"]] == ["old-1"]
    assert (dry["matching"], dry["open"], dry["pruned"]) == (1, 1, 0)
    assert "would be pruned" in run("sessions", "prune", "--dry-run")
    assert "nothing was changed" in run("sessions", "prune", code=1, answer="n\n")
    assert "nothing was changed" in run("sessions", "prune", code=1)  # nobody answers
    assert ids("list", "--all") == before
    assert result("sessions", "prune", "--source", "tui", "--yes")["matching"] == 0
    assert result("sessions", "prune", "--yes")["pruned"] == 1
    assert result("sessions", "prune", "--include-pinned", "--yes")["pruned"] == 1
    assert set(before) - set(ids("list", "--all")) == {"old-1", "old-2"}
    for wrong in (
        ("--older-than-days", "-5"),
        ("--older-than-days", "nan"),
        ("--older-than-days", "inf"),
        ("--min-cost", "-1"),
        ("--started-before", "yesterday"),
        ("--titel-like", "x"),
    ):
        assert wrong[0] in run("sessions", "prune", *wrong, "--yes", code=2)


def test_archiving_and_deleting(store: str) -> None:
    assert result("sessions", "archive", "--older-than-days", "30", "--dry-run")["matching"] == 1
    assert result("sessions", "archive", "--older-than-days", "30", "--yes")["archived"] == 1
    assert ids("list", "--archived") == ["old-1"]
    assert "brought back" in run("sessions", "archive", "old-1", "--undo")
    assert ids("list", "--archived") == []
    run("sessions", "archive", code=2)
    run("sessions", "archive", "old-1", "--source", "cli", code=2)
    run("sessions", "archive", "--undo", "--source", "cli", code=2)

    dry = result("sessions", "delete", "Cistern", "worker", "--dry-run")
    assert dry == {"sessions": ["a-tip", "worker"], "deleted": 0}
    assert "delegate" in run("sessions", "delete", "Cistern", "--dry-run")
    assert "nothing was changed" in run("sessions", "delete", "a-tip", code=1, answer="\n")
    assert "'zz'" in run("sessions", "delete", "old-1", "zz", "--yes", code=1)
    assert result("sessions", "delete", "Cistern", "--yes")["deleted"] == 2
    assert set(ids("list", "--all")) == {"a-root", "old-1", "old-2", "old-3"}


def test_export_and_import(store: str, make_location: Callable[..., str], tmp_path: Path) -> None:
    lines = run("sessions", "export").splitlines()
    assert [json.loads(line)["id"] for line in lines][-3:] == ["a-root", "a-tip", "worker"]
    document = tmp_path / "all.json"
    run("sessions", "export", "-f", "json", "-o", str(document))
    assert document.stat().st_mode & 0o777 == 0o600
    assert json.loads(document.read_text()) == [json.loads(line) for line in lines]
    assert "--force" in run("sessions", "export", "-o", str(document), code=2)
    chain = run("sessions", "export", "a-tip", "a-root", "--lineage").splitlines()
    assert [json.loads(line)["id"] for line in chain] == ["a-root", "a-tip"]
    assert run("sessions", "export", "--source", "tui", "-f", "json") == "[]\n"
    assert "蓄水池" in run("sessions", "export", "a-root", "-f", "markdown")

    target = make_location("sqlite")
    assert "6 sessions imported" in run("sessions", "import", str(document), "--db", target)
    again = result("sessions", "import", str(document), "--db", target)
    assert (again["imported"], again["skipped"], again["rejected"]) == (0, 6, [])
    copied = run("sessions", "export", "old-1", "--db", target)
    assert json.loads(copied)["messages"][0]["content"] == "long ago"
    new = str(tmp_path / "new.db")
    assert "no such file" in run(
        "sessions", "import", str(document), "--dry-run", "--db", new, code=1
    )
    assert not Path(new).exists()
    assert "6 sessions imported" in run(
        "sessions", "import", "-", "--db", new, answer="\n".join(lines)
    )


def test_rejected_records_are_reported(store: str, tmp_path: Path) -> None:  # usage 43
    records = [{"id": "good"}, {"id": None}, "text", {"id": "t", "title": "Cistern"}]
    document = tmp_path / "records.json"
    document.write_text(json.dumps(records))
    before = ids("list", "--all")
    for options, code in [((), 1), (("--dry-run",), 3)]:
        told = result("sessions", "import", str(document), *options, code=code)
        assert [(item["index"], item.get("session_id")) for item in told["rejected"]] == [
            (1, None),
            (2, None),
            (3, "t"),
        ]
        assert (told["read"], told["imported"]) == (4, 0)
        assert ids("list", "--all") == before
    assert "record 3 (t): title is already in use" in run(
        "sessions", "import", str(document), code=1
    )
    dry = run("sessions", "import", str(document), "--dry-run", code=3)
    assert "1 session would be imported" in dry
    told = result("sessions", "import", str(document), "--skip-invalid", code=3)
    assert (told["imported"], len(told["rejected"])) == (1, 3)

    many = tmp_path / "many.jsonl"
    lines = [json.dumps({"id": f"n{number}"}) for number in range(1200)]
    lines[700] = "{broken"
    many.write_text("\n".join(lines))
    told = result("sessions", "import", str(many), code=1)
    assert [item["index"] for item in told["rejected"]] == [700]
    assert result("sessions", "import", str(many), "--skip-invalid", code=3)["imported"] == 1199
    many.write_text("nothing of the kind")
    (item,) = result("sessions", "import", str(many), code=1)["rejected"]
    assert item["error"].startswith("the line is no JSON")
    document.write_text("nothing of the kind")
    assert "neither JSON nor" in run("sessions", "import", str(document), code=1)


def test_statistics(store: str) -> None:
    told = result("stats")
    assert (told["sessions"], told["messages"]) == (6, 6)
    assert told["bytes"] > 0
    assert [row["key"] for row in told["usage"]["day"]] == ["2026-01-01"]
    assert result("stats", "--until", "2025-12-01")["usage"]["model"] == []
    shown = run("stats")
    assert "big" in shown and "$0.25" in shown and "thousand" not in shown and "█" in shown


def test_every_filter_is_an_option() -> None:
    options = filters.OPTIONS.keys() - {"source"}
    assert options == typing.get_type_hints(PruneFilters).keys()
    assert filters.moment("2d") == pytest.approx(clock.now() - 2 * DAY, abs=60)
    assert filters.moment("2026-01-31T12:00+00:00") == 1769860800.0
    assert inspect.signature(filters.filtered(lambda filters: None)).parameters.keys() >= options


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "no.db")
    for command in (["list"], ["search", "x"], ["prune", "--yes"], ["export"]):
        assert "no such file" in run("sessions", *command, "--db", missing, code=1)
    assert not Path(missing).exists()
