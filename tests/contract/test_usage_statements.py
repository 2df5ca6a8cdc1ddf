"""How many statements usage of tokens sends."""

from typing import Any

from tests.contract.conftest import Sent


async def test_usage(db: Any, session: str, sent: Sent) -> None:
    in_both_tables = 2 if db.database.dialect.name == "sqlite" else 1
    sent()
    for report, statements in [
        (db.update_token_counts("s", input_tokens=1, model="m"), in_both_tables),
        (db.update_token_counts("new", api_call_count=1), in_both_tables),
        (db.update_token_counts("s", input_tokens=1, absolute=True), 1),
        (db.update_token_counts("s", actual_cost_usd=0.5), 1),
        (db.record_auxiliary_usage("s", "title"), in_both_tables),
        (db.queue_token_counts("s", input_tokens=1), 0),
        (db.flush_token_counts(), in_both_tables),
        (db.flush_token_counts(), 0),
        (db.get_recent_session_model_route("s"), 1),
    ]:
        await report
        assert sent() == statements
