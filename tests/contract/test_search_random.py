"""Random queries over random messages find what their meaning says, on every driver."""

import random

from hermes_orm import SessionDB
from hermes_orm.search.query import parse
from hermes_orm.search.text import search_columns
from tests.contract.finding import found
from tests.search.evaluation import matches_substrings, matches_words

TEXTS = [
    "docker",
    "dock",
    "foo_bar",
    "x-1",
    "数据库",
    "据库连",
    "数",
    "the",
    "and",
    "or",
    "a",
    "🚀",
]
PARTS = [*TEXTS, "AND", "OR", "NOT", "dock*", '"docker foo"', '"数据库 the"', "ocke", "oo_b", "库"]
ROLES = ["user", "assistant", "tool"]

Columns = tuple[str, str, str]


def expected(query: str, messages: list[tuple[str, Columns]], roles: list[str]) -> list[int]:
    """The ids of the messages that the query means, newest first."""
    parsed = parse(query)
    has_tools = "tool" in roles

    def by_substrings(fallback: bool) -> list[int]:
        tree = parsed.fallback() if fallback else parsed.substrings()
        return [
            number
            for number, (role, columns) in enumerate(messages, 1)
            if tree and matches_substrings(tree, columns[:2]) and (has_tools or role != "tool")
            if role in roles
        ][::-1]

    if parsed.is_cjk:
        return by_substrings(fallback=False)
    words = parsed.words()
    if words is None:
        return []
    hits = [
        number
        for number, (role, columns) in enumerate(messages, 1)
        if matches_words(words, columns) and role in roles
    ][::-1]
    return hits if hits or has_tools else by_substrings(fallback=True)


async def test_random_queries_find_what_they_mean(db: SessionDB) -> None:
    chance = random.Random(11)
    await db.create_session("s", "cli")
    messages: list[tuple[str, Columns]] = []
    for _ in range(80):
        role = chance.choice(ROLES)
        content = " ".join(chance.choices(TEXTS, k=chance.randrange(5)))
        name = chance.choice([None, "docker", "foo_bar"]) if role == "tool" else None
        messages.append((role, search_columns(content, name, None, role)))
        await db.append_message("s", role, content, tool_name=name)
    for _ in range(400):
        query = " ".join(chance.choices(PARTS, k=chance.randrange(1, 7)))
        roles = chance.choice([ROLES, ["user"], ["user", "assistant"]])
        meant = expected(query, messages, roles)
        start, size = chance.randrange(4), chance.randrange(1, 90)
        hits = await found(db, query, role_filter=roles, sort="newest", offset=start, limit=size)
        assert hits == meant[start : start + size], (query, roles, start, size)
