"""Random values of the arguments of message operations, the odd ones among them."""

from hypothesis import strategies as st

from tests.contract.session_values import odd_texts

sessions = st.sampled_from(["a", "a", "b", "c", "d"])
looked_up = sessions | sessions | sessions | st.sampled_from(["unknown", "", "a\x00"])
holders = st.sampled_from([None, None, None, "h1", "h2", "pid=1:x"])
row_ids = st.integers(0, 25) | st.integers(1, 8) | st.sampled_from([2**63 - 1, -1])
counts = st.sampled_from([None, -1, 0, 1, 2, 3, 10])
texts = odd_texts | st.sampled_from(
    [
        "needle in hay",
        "Café needles",
        "温室効果ガス",
        "\x00json:[1]",
        "\x01json:{}",
        "a\x00b",
        "x\ud800",
        "  ",
        "[IMPORTANT: x",
    ]
)
texts |= st.just("n").map(lambda text: text * 3000)  # (mapped: shown short)
contents = (
    texts
    | texts
    | st.none()
    | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": texts}), max_size=2)
    | st.dictionaries(texts, st.none() | st.integers(-9, 9), max_size=1)
)
calls = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["c1", "c2", "c3"])},
        optional={"function": st.just({"name": "f", "arguments": "{}"}), "type": texts},
    ),
    max_size=2,
)
owned = st.builds(lambda owner: {"gateway_input_owner": owner}, st.sampled_from(["o1", "o%", "é"]))
fields = {
    "tool_name": texts,
    "tool_calls": calls,
    "tool_call_id": st.sampled_from(["c1", "c2", "c3", "", None]),
    "token_count": st.none() | st.integers(0, 9),
    "finish_reason": st.sampled_from(["stop", None]),
    "reasoning": texts | st.none(),
    "reasoning_content": texts | st.none(),
    "reasoning_details": st.none() | st.just([{"d": 1}]) | texts,
    "codex_reasoning_items": st.none() | st.just([{"id": "r"}]),
    "platform_message_id": st.sampled_from(["p1", "p2", "", None]),
    "observed": st.booleans(),
    "effect_disposition": st.sampled_from([None, "applied"]),
    "timestamp": st.sampled_from([None, 1767225600.0, 1767225000, 5.5]),
    "api_content": st.none() | texts,
    "display_kind": st.sampled_from([None, "hidden", "notice"]),
    "display_metadata": st.none() | owned | st.just("{bad"),
}
roles = st.sampled_from(["user", "user", "user", "assistant", "assistant", "tool", "system", ""])
appended = st.fixed_dictionaries({}, optional=fields)
messages = st.builds(
    lambda role, content, more: {"role": role, "content": content, **more},
    roles,
    contents,
    appended,
)
turns = st.lists(messages, max_size=4)
