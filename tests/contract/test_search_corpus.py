"""What the worked examples find, on every driver."""

from typing import Any

from hermes_orm import SessionDB
from tests.contract.finding import found, found_set, tell_corpus
from tests.raw import Raw
from tests.search.corpora import CORPUS


async def test_every_example_finds_the_required_messages(db: SessionDB, raw: Raw) -> None:
    await tell_corpus(db, raw)
    hits, required = {}, {}
    for example in CORPUS["queries"]:
        arguments = example["arguments"]
        has_order = arguments.get("sort", "").strip().lower() in ("newest", "oldest")
        find = found if has_order else found_set
        hits[example["number"]] = await find(db, example["query"], **arguments)
        required[example["number"]] = example["hits"]
    assert len(required) == 175
    assert hits == required


COVERAGE: list[tuple[str, dict[str, Any], list[int]]] = [
    ("deploycheck", {}, [1, 2, 3, 4, 5]),
    ("deploycheck", {"exclude_sources": ["kanban", "subagent", "tool"]}, [1, 2, 4, 5]),
    ("部署日志", {}, [1, 5]),
    ("日志", {}, [1, 5]),
    ("eploychec", {}, [1, 5]),
    ("部署日志", {"source_filter": ["cron"]}, [2]),
    ("部署日志", {"source_filter": ["cli", "cron"]}, [1, 2, 5]),
    ("部署日志", {"exclude_sources": ["subagent"]}, [1, 5]),
    ("部署日志", {"role_filter": ["user", "tool"]}, [1, 2, 3, 4, 5]),
]


async def test_substring_search_leaves_out_cron_jobs_and_delegates(db: SessionDB) -> None:
    marker = {"_delegate_from": "root"}
    for session_id, source, config in [
        ("root", "cli", None),
        ("job", "cron", None),
        ("kid", "subagent", marker),
        ("gwkid", "telegram", marker),
        ("branch", "cli", {"_branched_from": "root"}),
    ]:
        parent = "root" if config else None
        await db.create_session(session_id, source, model_config=config, parent_session_id=parent)
        await db.append_message(session_id, "user", f"部署日志检查 deploycheck {session_id}word")
    for query, arguments, required in COVERAGE:
        assert await found_set(db, query, **arguments) == required, (query, arguments)
