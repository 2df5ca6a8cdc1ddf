"""An option for each filter of sessions that are pruned or archived."""

import functools
import inspect
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from hermes_orm import clock

_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)([hdw])")
_SECONDS: Final = {"h": 3_600, "d": 86_400, "w": 604_800}


def moment(text: str) -> float:
    """Return the Unix time that a date, a date with time, or an age names."""
    if age := _AGE.fullmatch(text):
        return clock.now() - float(age[1]) * _SECONDS[age[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            "give a date such as 2026-01-31 or 2026-01-31T18:30 (local time, unless an offset"
            " follows), or an age such as 12h, 30d or 8w"
        ) from None


def _option(kind: Any, help_text: str, *flags: str, **more: Any) -> Any:
    panel = "Filters; all must match"
    return Annotated[
        kind | None, typer.Option(*flags, help=help_text, rich_help_panel=panel, **more)
    ]


def _when(help_text: str) -> Any:
    return _option(float, help_text, parser=moment, metavar="WHEN")


def _number(kind: Any, help_text: str) -> Any:
    return _option(kind, help_text, min=0, metavar="N")


def _text(help_text: str) -> Any:
    return _option(str, help_text, metavar="TEXT")


OPTIONS: Final[dict[str, Any]] = {
    "source": _text("Where it came from: cli, telegram, cron ..."),
    "last_active_before": _when("Its latest message is older: a date, or an age such as 30d."),
    "last_active_after": _when("Its latest message is not older."),
    "started_before": _when("It started earlier."),
    "started_after": _when("It did not start earlier."),
    "title_like": _text("A part of its title; case does not count."),
    "model_like": _text("A part of its model's name."),
    "branch_like": _text("A part of its git branch."),
    "cwd_prefix": _option(str, "Its working directory, or one above.", metavar="DIR"),
    "end_reason": _text("Why it ended, exactly."),
    "provider": _text("Its billing provider; case does not count."),
    "user_id": _text("Its user, exactly."),
    "chat_id": _text("Its chat, exactly."),
    "chat_type": _text("The type of its chat, exactly."),
    "min_messages": _number(int, "It has as many messages, or more."),
    "max_messages": _number(int, "It has no more messages."),
    "min_tokens": _number(int, "Its input and output, in tokens, come to this or more."),
    "max_tokens": _number(int, "They come to no more."),
    "min_cost": _number(float, "It cost this or more, in US dollars."),
    "max_cost": _number(float, "It cost no more."),
    "min_tool_calls": _number(int, "It called tools as often, or more often."),
    "max_tool_calls": _number(int, "It called tools no more often."),
    "archived": _option(bool, "It is archived, or not.", "--archived/--not-archived"),
    "include_pinned": _option(bool, "Pinned sessions, too.", "--include-pinned"),
}


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each filter; its argument `filters` holds those in use."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "filters"]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in OPTIONS.items()
    ]

    @functools.wraps(command)
    def with_filters(**given: Any) -> None:
        found = {name: given.pop(name) for name in OPTIONS}
        command(filters={n: v for n, v in found.items() if v is not None}, **given)

    del vars(with_filters)["__wrapped__"]
    with_filters.__annotations__ = {}
    vars(with_filters)["__signature__"] = inspect.Signature(
        [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *options)]
    )
    return with_filters
