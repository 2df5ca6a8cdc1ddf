"""Messages and queries to search with: the worked examples, and random ones."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from hermes_orm.search.text import search_columns

FIXTURES = Path(__file__).parent.parent / "fixtures" / "search"
EXAMPLES = json.loads((FIXTURES / "queries.json").read_text())
CORPUS = json.loads((FIXTURES / "corpus.json").read_text())

Rows = list[tuple[str, str]]

WORDS = ["docker", "dock", "Café", "a", "foo_bar", "x-1", "数据库", "ẞ", "🤖", "the", "and"]
ROWS = st.lists(
    st.tuples(*[st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)] * 2), max_size=6
)
QUERY_PARTS = [*WORDS, "AND", "OR", "NOT", "dock*", '"docker foo"', '"a b"*', "🚀", "ocke", "NOT a"]
QUERIES = st.lists(st.sampled_from(QUERY_PARTS), min_size=1, max_size=7).map(" ".join)
TEXTS = st.text(st.sampled_from("aANDORT '\"*.-%^:+(){}\\~\0\ud800中　🚀🤖") | st.characters())


def columns(row: dict[str, Any]) -> tuple[str, str, str]:
    """The searched text of a message of the corpus."""
    calls = json.dumps(row["tool_calls"]) if "tool_calls" in row else None
    return search_columns(row["content"], row.get("tool_name"), calls, row["role"])
