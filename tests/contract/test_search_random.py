"""Random queries over random messages find what their meaning says, on every driver."""

import os
import random

from hermes_orm import SessionDB
from hermes_orm.search.query import parse
from hermes_orm.search.text import search_columns
from tests.search.evaluation import matches_substrings, matches_words

# Letters outside of ASCII that have a case stay out: substring search tolerates differences there.
TEXTS = [
    *("docker", "dock", "Docker", "foo_bar", "x-1", "a", "the", "and", "or", "42", "3.14"),
    *(
        "数据库",
        "据库连",
        "数",
        "数据库docker",
        "。数据",
        "東京タワー",
        "カタカナ",
        "일본",
        "일본 여행",
        "𠀀𠀁",
    ),
    *("नमस्ते", "हिन्दी", "مرحبا", "שלום", "สวัสดี", "ß", "½", "🚀", "🤖", "a\u0301b", "\t", "²"),
]
PARTS = [
    *TEXTS,
    *("AND", "OR", "NOT", "dock*", "नम*", '"docker foo"', '"数据库 the"', "ocke", "oo_b", "库"),
    *("タワ", "본", "वस", "据库 OR 일", "#a", "?", '"', "100%数"),
]
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


QUERIES = int(os.environ.get("HERMES_ORM_SEARCH_QUERIES", "700"))
"""How many are asked on each of the three drivers; 20,000 for a thorough run."""
STAGES = 5


async def test_random_queries_find_what_they_mean(db: SessionDB) -> None:
    await ask_random_queries(db, seed=11, queries=QUERIES)


async def ask_random_queries(db: SessionDB, *, seed: int, queries: int) -> None:
    """Compare the hits of random queries with their meaning, in an empty store."""
    chance = random.Random(seed)
    await db.create_session("s", "cli")
    messages: list[tuple[str, Columns]] = []
    for _ in range(STAGES):
        await tell(db, chance, messages)
        for _ in range(queries // STAGES):
            query = " ".join(chance.choices(PARTS, k=chance.randrange(1, 7)))
            roles = chance.choice([ROLES, ["user"], ["user", "assistant"]])
            meant = expected(query, messages, roles)
            start, size = chance.randrange(4), chance.randrange(1, 90)
            hits = await db.search_messages(
                query, role_filter=roles, sort="newest", offset=start, limit=size, fields=["id"]
            )
            ids = [hit["id"] for hit in hits]
            assert ids == meant[start : start + size], (query, roles, start, size)


async def tell(db: SessionDB, chance: random.Random, messages: list[tuple[str, Columns]]) -> None:
    """Append random messages."""
    rows = []
    for _ in range(30):
        role = chance.choice(ROLES)
        content = " ".join(chance.choices(TEXTS, k=chance.randrange(5)))
        name = chance.choice([None, "docker", "foo_bar"]) if role == "tool" else None
        messages.append((role, search_columns(content, name, None, role)))
        rows.append({"role": role, "content": content, "tool_name": name})
    await db.append_messages_batch("s", rows)
