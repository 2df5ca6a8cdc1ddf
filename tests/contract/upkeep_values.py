"""Random values of the arguments of usage, retention, import and gateway operations.

Most of them are ordinary: what is refused changes nothing, and so shows little.
"""

import math
from typing import Any

from hypothesis import strategies as st

from tests.contract import message_values
from tests.contract.session_values import START, odd_texts

DAY = 86_400


def mostly(ordinary: list[Any], *odd: Any) -> st.SearchStrategy[Any]:
    """One of the ordinary values, and one time in twelve an odd one."""
    rare = st.sampled_from(odd)
    return st.integers(0, 11).flatmap(lambda n: rare if n == 7 else st.sampled_from(ordinary))


sessions = st.sampled_from(["a", "a", "b", "b", "c", "d", "a_b", "é"])
looked_up = mostly(
    ["a", "a", "b", "b", "c", "d", "a_b", "é"], None, "", "x", "a\x00", "a\ud800", "%"
)
sources = st.sampled_from(["cli", "tui", "tg"])
switches = st.booleans()
texts = st.none() | st.sampled_from(["m", "M%", "", "x\ud800"]) | odd_texts

# Usage

counts = mostly([None, 0, 1, 5, 40], -1, 2.9, True, 2**62, 2**63 - 1, 2**63, math.nan, "5")
costs = mostly([None, 0, 0.0, 0.25, 1.5], 0.1, 1e300, -0.5, math.nan, math.inf, 2**70, "1")
models = mostly([None, "", "m1", "m1", "m2", "M%"], "x\ud800", "a\x00")
COUNTERS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "api_call_count",
)
shared = {
    **dict.fromkeys(COUNTERS, counts),
    "estimated_cost_usd": costs,
    "model": models,
    "billing_provider": models,
    "billing_base_url": st.sampled_from([None, "", "u"]),
}
reports = st.fixed_dictionaries(
    {},
    optional={
        **shared,
        "actual_cost_usd": costs,
        "cost_status": texts,
        "cost_source": texts,
        "pricing_version": texts,
        "billing_mode": st.sampled_from([None, "", "b"]),
        "absolute": switches,
    },
)
auxiliary = st.fixed_dictionaries({}, optional=shared)
tasks = st.sampled_from(["title", "Title", "", "x\x00", "é"])
periods = mostly([None, START, START + 1, START + DAY], math.nan, "x", -1e300)
statistics = st.fixed_dictionaries(
    {}, optional={"by": mostly(["model", "day", "source"], "x"), "since": periods, "until": periods}
)

# Retention

ages = mostly([None, 0, 0, 0.5, 1, 3, 90], -1, math.nan, 1e300, 10**400, "1", True)
times = mostly(
    [None, START, START + DAY, START + 5 * DAY], START - DAY, 0, -1, math.inf, 1e308, "1"
)
numbers = mostly([None, 0, 1, 2, 3], 2**63, 1.5, -1, "1", 1.0)
filters = {
    "source": mostly([None, "", "cli", "tui", "tg"], "x\x00", 5),
    **dict.fromkeys(("last_active_before", "last_active_after"), times),
    **dict.fromkeys(("started_before", "started_after"), times),
    "title_like": mostly([None, "", "a_B", "%", "O"], "x\ud800", 5),
    "model_like": mostly([None, "", "M", "%"], "x\x00"),
    "branch_like": mostly([None, "", "x"], "x\x00"),
    "end_reason": mostly([None, "", "compression", "idle"], "x\x00"),
    "cwd_prefix": mostly(["", "/", "/w", "/w/"], " ", "\\w", "/w%"),
    **dict.fromkeys(("min_messages", "max_messages", "min_tokens", "max_tokens"), numbers),
    **dict.fromkeys(("min_tool_calls", "max_tool_calls"), numbers),
    **dict.fromkeys(("min_cost", "max_cost"), costs),
    "archived": mostly([None, True, False, 0, 1], 2, "no"),
    "provider": mostly([None, "M1", "m2"], "x\x00"),
    "user_id": mostly([None, "u", ""], "x\x00"),
    "chat_id": mostly([None, "c"], "x\x00"),
    "chat_type": mostly([None, "dm"], "x\x00"),
    "include_pinned": mostly([None, True, False, 1], "x"),
}


@st.composite
def few_filters(draw: st.DrawFn) -> dict[str, Any]:
    """Up to three filters, and rarely one that does not exist."""
    names = draw(st.lists(mostly(list(filters), "misspelt"), max_size=3))
    return {name: draw(filters.get(name, st.just(1))) for name in names}


expected = st.none() | st.lists(sessions, max_size=3)
several = st.lists(looked_up, max_size=5)

# Import

numerals = mostly([None, 1, "12.5", START, 5.5], "x", math.nan, 2**64, -1, 1e300, True)
imported_messages = st.builds(
    lambda message, more: {**message, **more},
    message_values.messages,
    st.fixed_dictionaries(
        {},
        optional={
            "message_id": mostly([None, "p1"], "", 5),
            "token_count": mostly([None, 1, "5"], "x", 2**64),
            "active": st.just(0),
            "id": st.just(5),
            "timestamp": numerals,
            "reasoning_details": st.sampled_from(["[1]", "{bad", None]),
        },
    ),
)
entries = st.fixed_dictionaries(
    {"id": mostly(["a", "b", "c", "e", "f", "g"], " sp ", 5, None, "a\x00", "n%", "x" * 1025)},
    optional={
        "source": mostly([None, "", "cli", "tg"], "x\x00", 5),
        "parent_session_id": mostly([None, "a", "b", "e", "f", "g"], "unknown", " a ", ""),
        "title": mostly([None, "Foo", "Bar", "a_b", " x"], "x\x00", "x" * 101, 5),
        "model": models,
        "model_config": mostly([None, {}, {"_branched_from": "a"}], "", "{bad", "[1]", 5),
        "system_prompt": mostly([None, "P", ""], "x\x00"),
        "started_at": numerals,
        "ended_at": numerals,
        "input_tokens": numerals,
        "estimated_cost_usd": numerals,
        "actual_cost_usd": costs,
        "archived": st.sampled_from([None, 0, 1, "no", ""]),
        "pinned": st.just(1),
        "messages": st.lists(imported_messages, max_size=3) | mostly([None], "x", [5]),
    },
)
imports = st.lists(entries, min_size=1, max_size=3)

# Gateway

keys = mostly([None, "", "k", "k", "agent:work:k", "agent:main:k", "k%"], "k\x00")
peers = st.fixed_dictionaries(
    {"source": mostly(["tg", "tg", "TG"], "x\x00"), "session_key": keys},
    optional={
        "user_id": mostly([None, "u", "u", ""], "x\x00"),
        "chat_id": mostly([None, "", "c", "c"], "c\ud800"),
        "chat_type": st.sampled_from([None, "", "dm"]),
        "thread_id": st.sampled_from([None, "", "1"]),
    },
)
scopes = st.sampled_from(["", "A", "A%", "é"])
routed = st.builds('{{"session_id": "{}"}}'.format, sessions) | mostly(
    ["", "{bad", "[1]", '{"session_id": "\\u00e9"}'], '{"session_id": "a\\u0000"}', "x\x00"
)
named_keys = mostly(["k", "agent:work:k", "k%"], "", "k\x00")
routes = st.dictionaries(named_keys, routed, max_size=3)
platforms = mostly(["tg", "discord"], "", "x\x00")
states = mostly([None, (), ("running",), ("pending", "running")], "running")
lives = st.fixed_dictionaries(
    {},
    optional={
        "title": st.sampled_from([None, "Foo", "a_b", "A_B%", "Bar"]),
        "turns": message_values.turns,
        "report": reports,
        "peer": peers,
        "reason": mostly([None, "idle", "compression", "agent_close", "session_reset"], "r\x00"),
        "flag": st.sampled_from(["archived", "pinned"]),
    },
)
"""What may happen to a session from its start to its end."""
