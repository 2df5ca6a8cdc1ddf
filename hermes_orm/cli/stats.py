"""`hermes-orm stats`."""

from collections import defaultdict
from datetime import date, timedelta
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from hermes_orm.cli.display import (
    amount,
    console,
    dollars,
    line,
    short,
    show,
    show_json,
    size,
    table,
)
from hermes_orm.cli.filters import moment
from hermes_orm.cli.store import AsJson, Db, look
from hermes_orm.repositories.usage.statistics import UsageGroup
from hermes_orm.rows import UsageStatistics
from hermes_orm.session_db import SessionDB

GROUPS: Final[tuple[UsageGroup, ...]] = ("model", "provider", "task", "source", "day")
MOST_BARS: Final = 60
HEIGHT: Final = 12
WIDTH: Final = 100
UNITS: Final = ((10**9, "billion "), (10**6, "million "), (10**4, "thousand "))

When = Annotated[
    float | None,
    typer.Option(
        parser=moment,
        metavar="WHEN",
        help="Only usage from then on: a date (local time) or an age such as 30d.",
    ),
]
Until = Annotated[
    float | None, typer.Option(parser=moment, metavar="WHEN", help="Only usage before.")
]


def stats(since: When = None, until: Until = None, url: Db = None, as_json: AsJson = False) -> None:
    """Tell how much is stored, and what was spent: by model, task and source, and over time.

    Usage counts for the day, of UTC, of its latest report. Deleted sessions are not in it. Exit
    codes: 0 done; 1 failed (the reason is on standard error); 2 wrong arguments.
    """

    async def asked(db: SessionDB) -> dict[str, Any]:
        sources = await db.session_count_by_source(include_archived=True)
        return {
            "bytes": await db.logical_size_bytes(),
            "sessions": sum(sources.values()),
            "messages": await db.message_count(),
            "sessions_by_source": sources,
            "usage": {by: await db.usage_statistics(by, since, until) for by in GROUPS},
        }

    told = look(url, asked)
    if as_json:
        show_json(told)
        return
    show(_totals(told))
    usage = told["usage"]
    if not usage["model"]:
        show("\nNo usage was reported.")
        return
    for by in ("model", "task", "source"):
        show("", _groups(by, usage[by]))
    show("", *_chart(usage["day"]))


def _totals(told: dict[str, Any]) -> Table:
    models = told["usage"]["model"]
    tokens = [sum(row[name] for row in models) for name in ("input_tokens", "output_tokens")]
    sources = ", ".join(f"{line(name)} {n:,}" for name, n in told["sessions_by_source"].items())
    shown = Table.grid(padding=(0, 2))
    for name, value in {
        "sessions": f"{told['sessions']:,}" + (f" ({sources})" if sources else ""),
        "messages": amount(told["messages"]),
        "size": size(told["bytes"]),
        "tokens": f"{tokens[0]:,} in, {tokens[1]:,} out",
        "cost": dollars(sum(row["cost_usd"] for row in models)),
    }.items():
        if value:
            shown.add_row(Text(name, "dim"), value)
    return shown


def _groups(by: str, rows: list[UsageStatistics]) -> Table:
    numbers = ("sessions", "calls", "input", "output", "cache read", "reasoning", "cost")
    told = (_group(by, row) for row in rows)
    return table((by, *numbers), told, right=numbers, optional=("reasoning", "cache read", "calls"))


def _group(by: str, row: UsageStatistics) -> tuple[str, ...]:
    return (
        short(row["key"], 40) or ("(conversation)" if by == "task" else "(unknown)"),
        amount(row["sessions"]),
        amount(row["api_call_count"]),
        amount(row["input_tokens"]),
        amount(row["output_tokens"]),
        amount(row["cache_read_tokens"]),
        amount(row["reasoning_tokens"]),
        dollars(row["cost_usd"]),
    )


def _chart(days: list[UsageStatistics]) -> tuple[Text, Text]:
    """Return bars of tokens per day, month or year, whichever fits, under their title."""
    import plotext

    period, bars = _periods(days)
    greatest = max(bars.values(), default=0)
    unit, name = next((unit for unit in UNITS if greatest >= unit[0]), (1, ""))
    figure = plotext.figure
    figure.clear()
    figure.plot_size(min(console().width, WIDTH), HEIGHT)
    heights = [tokens / unit for tokens in bars.values()]
    figure.draw(figure.bar(list(bars), heights, width=0.8))
    drawn = plotext.uncolorize(str(figure.build()))
    return Text(f"{name}tokens per {period}, input and output", "bold"), Text(drawn, "cyan")


def _periods(days: list[UsageStatistics]) -> tuple[str, dict[str, int]]:
    """Return the tokens of each day from the first to the last, or of longer periods if many."""
    spent = {date.fromisoformat(day["key"]): day for day in days if day["key"]}
    if not spent:
        return "day", {}
    first, last = min(spent), max(spent)
    tokens = {first + timedelta(number): 0 for number in range((last - first).days + 1)} | {
        day: row["input_tokens"] + row["output_tokens"] for day, row in spent.items()
    }
    by_day, by_month, by_year = (_merged(tokens, length) for length in (10, 7, 4))
    if len(by_day) <= MOST_BARS:
        return "day", by_day
    return ("month", by_month) if len(by_month) <= MOST_BARS else ("year", by_year)


def _merged(tokens: dict[date, int], length: int) -> dict[str, int]:
    """Return the sums over days whose dates begin alike."""
    sums: dict[str, int] = defaultdict(int)
    for day, number in tokens.items():
        sums[day.isoformat()[:length]] += number
    return sums
