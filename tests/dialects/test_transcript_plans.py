"""PostgreSQL reads a transcript by the index of its session, however old and large that is."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, text

from hermes_orm.dialects import Prepared
from hermes_orm.repositories.messages.lookups import LATEST, LATEST_LIVE, recent_of_user
from hermes_orm.repositories.messages.resume import COUNT_DISPLAYED
from hermes_orm.repositories.messages.rows import MESSAGE_KEYS
from hermes_orm.repositories.messages.transcripts import displayed_rows, session_rows
from hermes_orm.repositories.messages.views import AROUND, anchored
from hermes_orm.repositories.portability.exports import MESSAGES
from tests.raw import Raw

OTHERS = "'o' || n % 900"
FILL = """
    INSERT INTO messages (session_id, role, content, timestamp)
    SELECT {session}, CASE WHEN n % 2 = 0 THEN 'user' ELSE 'assistant' END, 'text', n
    FROM generate_series(1, {rows}) AS n
"""
FIRST = -(2**63)
PARAMS = {
    "session_id": "old",
    "from_id": FIRST,
    "anchor": 15_000,
    "limit": 50,
    "offset": 0,
    "window": 5,
    "bookend": 3,
    "role": "user",
    "roles": '["user"]',
    "empty_list": "",
    "empty_dict": "",
    "ids": '["old", "o1"]',
}
READS: dict[str, Callable[[], Prepared]] = {
    "page": lambda: session_rows(MESSAGE_KEYS, with_inactive=False),
    "around": lambda: AROUND,
    "anchored": lambda: anchored(every_role=False),
    "latest": lambda: LATEST[True],
    "watermark": lambda: LATEST_LIVE,
    "recent": lambda: recent_of_user(with_inactive=False),
    "displayed": lambda: displayed_rows(MESSAGE_KEYS, with_inactive=False),
    "counted": lambda: COUNT_DISPLAYED,
    "exported": lambda: MESSAGES,
}


@pytest.fixture(scope="module")
def large(postgres_server: Any, postgres_template: str) -> Iterator[Connection]:
    """A session of 3,000 messages, as many as a tenth of those before and after it."""
    name = f"{postgres_server.prefix}_plans_{os.getpid()}"
    postgres_server.create(name, postgres_template)
    engine = Raw(postgres_server.location(name, "postgresql+psycopg")).engine
    with engine.connect() as connection:
        sessions = "SELECT 'o' || n FROM generate_series(0, 899) AS n UNION ALL SELECT 'old'"
        connection.execute(
            text(
                f"INSERT INTO sessions (id, source, started_at) SELECT id, 'cli', 1 "
                f"FROM ({sessions}) AS s (id)"
            )
        )
        for session, rows in [(OTHERS, 14_000), ("'old'", 3_000), (OTHERS, 14_000)]:
            connection.execute(text(FILL.format(session=session, rows=rows)))
        connection.execute(text("ANALYZE"))
        yield connection
    postgres_server.drop(name)


@pytest.mark.parametrize("name", READS)
def test_no_other_session_is_read(large: Connection, name: str) -> None:
    statement = READS[name]().compiled(large.dialect).text
    plan = large.exec_driver_sql(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {statement}", PARAMS)
    lines = [line for (line,) in plan]
    skipped = [int(line.split()[-1]) for line in lines if "Rows Removed by Filter" in line]
    assert max(skipped, default=0) <= 3_000, "\n".join(lines)
    assert not any("Seq Scan on messages" in line for line in lines), "\n".join(lines)
