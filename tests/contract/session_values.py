"""Random values of the arguments of session operations, the odd ones among them."""

from hypothesis import strategies as st

START = 1767225600.0

ids = st.sampled_from(["a", "b", "c", "A", "ab", "a_b", "axb", "é", "I", "i"])
long_texts = st.sampled_from(["x", "%_", "Foo "]).map(lambda text: text * 20_000)
lookups = ids | st.sampled_from([None, "", "unknown", "a\x00", "a\ud800"]) | long_texts
parents = st.none() | ids | st.sampled_from(["", "unknown"])
odd_texts = st.text(max_size=8) | st.sampled_from(["", "x\ud800", "a\x00b", "ÉCOLE", "%_\\", " k "])
reasons = st.sampled_from(
    [*["compression"] * 5, "branched", "session_reset", "idle", "agent_close", "", None, "r\x00"]
)
stems = st.sampled_from(
    [
        "Foo",
        "foo",
        "fOO",
        "TITLE",
        "title",
        "ı",
        "École",
        "éCOLE",
        "100%",
        "a_b",
        "x" * 100,
        "y" * 98,
    ]
)
segments = st.builds("{} #{}".format, stems, st.sampled_from(["2", "3", "07", "9" * 25, "x", "٣"]))
bad_titles = st.sampled_from(["", None, "  A\t\n b ", "\u200b", "x" * 101, "a\ud800", 5, " #2"])
titles = stems | stems | segments | bad_titles | odd_texts
paths = st.sampled_from([None, "", " ", "/", "/w", "/w/", "/w/x", "/W/x", "/w2", "\\w", "/w%"])
stamps = st.none() | st.sampled_from([0, START, START + 1, "5", -1.5, 2**31, "soon"])
markers = st.sampled_from(["_branched_from", "_delegate_from", "_reset_from"])
keys = markers | st.sampled_from(["k", "browser_model_lock"])
nested = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | ids | odd_texts,
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(odd_texts, parts, max_size=2),
    max_leaves=4,
)
configs = st.dictionaries(keys, nested, max_size=3)
config_texts = st.sampled_from(
    [
        None,
        "",
        "{bad",
        "[1]",
        '"_delegate_from"',
        '{"k": NaN}',
        '{"_delegate_from": NaN}',
        '{"_delegate_from": "a", "_delegate_from": null}',
        '{"_branched_from": null, "_branched_from": "a"}',
        '{"_branched_from": 1.0}',
        '{"_branched_from": 1e400}',
        '{"_branched_from": [1, 2]}',
        '{"_branched_from": {"a": [1,2.50]}}',
        '{"_branched_from": "\\ud800"}',
        '{"_reset_from": "\\u0000"}',
        '{"_reset_from": false}',
        '{"\\u005freset_from": "a"}',
        "{'_branched_from': 'a'}",
        '{"_branched_from": "a",}',
        ' {"_delegate_from": ""} ',
        '\ufeff{"_delegate_from": "a"}',
        '{"_delegate_from": "a"}\x00',
        '{"_delegate_from": ' + "[" * 2000 + "]" * 2000 + "}",
    ]
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "model": st.none() | odd_texts,
        "model_config": st.none() | configs | config_texts,
        "system_prompt": st.none() | st.sampled_from(["P", "Q", ""]) | odd_texts,
        "user_id": st.sampled_from([None, "u", "v\x00"]),
        "session_key": st.sampled_from([None, "", "k", "agent:main:telegram:dm:1"]),
        "chat_id": odd_texts,
        "parent_session_id": parents,
        "cwd": paths | odd_texts,
        "profile_name": st.sampled_from([None, "main", "other"]),
        "git_repo_root": paths,
        "origin_json": st.sampled_from([None, "{}"]),
        "title": st.just("not accepted"),
    },
)
sources = st.sampled_from(["cli", "cli", "cli", "tool", "", "tg"])
some_sources = st.sampled_from([None, [], ["cli"], ["tool", ""], ["unknown"]])
numbers = st.sampled_from([None, -1, 0, 1, 2, 3, 10, 2**63])
some_queries = st.sampled_from([None, " ", "foo", "É", "é", "_", "f o", "#"])
queries = odd_texts | stems | ids | some_queries | long_texts
filters = {
    "source": st.sampled_from([None, "", "cli", "tool"]),
    "sources": some_sources,
    "exclude_sources": some_sources,
    "cwd_prefix": paths,
    "min_message_count": st.sampled_from([-1, 0, 1, 2]),
    "include_archived": st.booleans(),
    "archived_only": st.booleans(),
    "include_hidden": st.booleans(),
}
list_options = st.fixed_dictionaries(
    {},
    optional={
        **filters,
        "limit": numbers,
        "offset": numbers.filter(lambda number: number is not None),
        "include_children": st.booleans(),
        "project_compression_tips": st.booleans(),
        "order_by_last_active": st.booleans(),
        "id_query": queries,
        "search_query": queries | titles.filter(lambda title: not isinstance(title, int)),
        "compact_rows": st.booleans(),
        "include_pinned": st.booleans(),
        "session_key": st.sampled_from([None, "", "k"]),
    },
)
searched = st.fixed_dictionaries(
    {},
    optional={
        name: filters.get(name, numbers)
        for name in ("source", "sources", "exclude_sources", "include_archived", "limit")
    },
)
counted = st.fixed_dictionaries({}, optional={**filters, "exclude_children": st.booleans()})
skills = st.builds('[IMPORTANT: The user has invoked the "{}" skill.'.format, odd_texts)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "user", "assistant", "tool"])},
    optional={
        "content": st.none() | odd_texts | skills | st.just([{"type": "text", "text": "see"}]),
        "timestamp": stamps,
        "tool_calls": st.just([{"id": "c", "function": {"name": "f", "arguments": "{}"}}]),
    },
)
foreign_values = st.fixed_dictionaries(
    {},
    optional={
        "parent_session_id": st.none() | ids,
        "started_at": st.sampled_from([START, START + 1, START - 700_000]),
        "title_source": st.sampled_from([None, "odd"]),
        "message_count": st.sampled_from([None, 5]),
        "api_call_count": st.sampled_from([None, 1]),
        "end_reason": st.sampled_from([None, "compression"]),
        "last_activity_at": st.sampled_from([None, START - 5, START + 5]),
        "system_prompt": st.sampled_from([None, "inline"]),
    },
).filter(bool)
