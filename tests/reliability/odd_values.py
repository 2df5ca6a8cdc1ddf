"""Values that no operation expects, and calls of every operation that hold some."""

import copy
import datetime
import decimal
import enum
import fractions
import inspect
import pathlib
import queue
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from hermes_orm import SessionDB
from tests.contract.samples import SAMPLES
from tests.contract.test_surface import keywords_of

SECRET = "s3cr3t"
DEPTH = 20_000
SYNTAX = [
    "{}' OR '1'='1' --",
    '{}"; DROP TABLE sessions; --',
    "{}%_\\",
    "%",
    "_",
    "*",
    "$1 ? :id %s %(id)s {{}} {}",
    '{{"{}": [null, 1e999, "\\ud800\\u0000"]}}',
    '{{"{}": NaN}}',
    '"{}" NEAR(a b, 2) ^x* AND NOT OR (',
    "{} & !a | b <-> 'c':*ABCD",
    "\x00json:[{}",
    "\x01json:[{}",
    "../../{}",
    "{}\0tail",
    "{}\ud800\udfff",
    "\u202e{}\u2066\u200b\ufeff",
    "{}\n\r\t\x1b[31m",
    "",
    " ",
    "None",
    "-1",
    "1e400",
    "9" * 5_000,
    "2026-01-01T00:00:00Z",
]


class Text(str):
    """A text of a class of its own, that shows itself otherwise."""

    __slots__ = ()

    def __str__(self) -> str:
        return "shown"


class Whole(int):
    """A number of a class of its own."""


class Shade(enum.StrEnum):
    """A text that is a member."""

    DARK = "dark"


class Level(enum.IntEnum):
    """A number that is a member."""

    HIGH = 3


class Opaque:
    """Nothing that anybody knows; its text is a secret."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def __repr__(self) -> str:
        return self.secret


def cyclic_list(secret: str) -> list[Any]:
    made: list[Any] = [secret]
    made.append(made)
    return made


def cyclic_dict(secret: str) -> dict[str, Any]:
    made: dict[str, Any] = {"text": secret}
    made["self"] = made
    return made


def deep_list(secret: str) -> list[Any]:
    made: list[Any] = [secret]
    for _ in range(DEPTH):
        made = [made]
    return made


def deep_dict(secret: str) -> dict[str, Any]:
    made: dict[str, Any] = {"text": secret}
    for _ in range(DEPTH):
        made = {"in": made}
    return made


@dataclass(frozen=True)
class Odd:
    """A value by its name, made anew for each call: a call may use it up."""

    name: str
    make: Callable[[str], Any]

    def __repr__(self) -> str:
        return self.name


def always(value: Any) -> Odd:
    return Odd(repr(value)[:40], lambda secret: value)


NUMBERS = [
    *(None, True, False, 0, 1, -1, 5, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63)),
    *(-(2**63) - 1, 10**400, -(10**400), 0.0, -0.0, 0.5, -1.5, 1e15, 1e19, 1e300, -1e300, 5e-324),
    *(float("nan"), float("inf"), float("-inf"), 1j),
    *(decimal.Decimal("1E+999"), decimal.Decimal("1.5")),
    *(fractions.Fraction(1, 3), Whole(2), Whole(2**70), Level.HIGH, range(3), range(0)),
]
OTHERS = [
    *(Shade.DARK, ..., int, types.MappingProxyType({"k": 1})),
    *(datetime.date(2026, 1, 1), datetime.datetime(1, 1, 1), datetime.timedelta(days=1)),
    *(datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC), uuid.UUID(int=7)),
    *((), frozenset(), frozenset({1}), (None,), ("s", "k")),
]
MADE: dict[str, Callable[[str], Any]] = {
    "bytes": str.encode,
    "half a character": lambda secret: f"{secret}\ud800",
    "bad bytes": lambda secret: secret.encode() + b"\xff\x00",
    "bytearray": lambda secret: bytearray(secret.encode()),
    "memoryview": lambda secret: memoryview(secret.encode()),
    "path": pathlib.Path,
    "text class": Text,
    "opaque": Opaque,
    "lambda": lambda secret: lambda *args: secret,
    "generator": lambda secret: (secret for _ in range(2)),
    "iterator": lambda secret: iter([{"role": "user", "content": secret}]),
    "set": lambda secret: {secret},
    "list": lambda secret: [],
    "dict": lambda secret: {},
    "list of text": lambda secret: [secret, "s"],
    "list of odd things": lambda secret: [None, 1, b"x", secret, ["s"], {"id": "s"}],
    "tuple of text": lambda secret: (secret,),
    "pairs": lambda secret: [(secret, 1), ("k", None)],
    "dict of text": lambda secret: {secret: secret},
    "dict of odd keys": lambda secret: {None: secret, 1: 2, ("a",): 3, b"k": 4},
    "dict of odd values": lambda secret: {
        "id": secret, "content": b"\xff", "nan": float("nan"), "huge": 10**400, "half": "\udc00",
        "nul": "a\0b", "object": Opaque(secret), "set": {1},
    },
    "cyclic list": cyclic_list,
    "cyclic dict": cyclic_dict,
    "deep list": deep_list,
    "deep dict": deep_dict,
    "deep JSON": lambda secret: "[" * DEPTH + "]" * DEPTH,
    "60,000 characters": lambda secret: secret + "x" * 60_000,
    "1 MB": lambda secret: f"{secret} word" * (1_000_000 // 16),
}  # fmt: skip
TEXTS = [Odd(repr(text)[:40], text.format) for text in SYNTAX]
ODD = [
    *TEXTS,
    *map(always, ("s", "locked")),
    *map(always, NUMBERS + OTHERS),
    *(Odd(name, make) for name, make in MADE.items()),
]


NAMED = {odd.name: odd for odd in ODD}


def operations() -> dict[str, Any]:
    """Return every public operation that takes arguments."""
    return {
        name: method
        for name, method in inspect.getmembers_static(SessionDB)
        if (inspect.iscoroutinefunction(method) or name == "iter_export")
        and not name.startswith("__")
        and len(inspect.signature(method).parameters) > 1
    }


def parameters(method: Any) -> list[str]:
    """Return what an operation can be told by name, keywords of `**` and an unknown one too."""
    names: list[str] = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            names += [*sorted(keywords_of(method)), "no_such_name"]
        else:
            names.append(parameter.name)
    return names


def sample(name: str, method: Any) -> dict[str, Any]:
    """Return the arguments of a call that succeeds, by name."""
    if name == "iter_export":
        return {}
    bound = inspect.signature(method).bind(None, *SAMPLES[name].args, **SAMPLES[name].kwargs)
    _, *given = bound.arguments.items()
    found: dict[str, Any] = {}
    for parameter, value in given:
        if bound.signature.parameters[parameter].kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[parameter] = value
    return found


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value within a value."""
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, inner in items:
        yield (key,)
        yield from ((key, *way) for way in places(inner))


def replaced(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    """Return `value` with what stands at the end of a way replaced."""
    if not way:
        return new
    key, *rest = way
    inner = replaced(value[key], tuple(rest), new)
    if isinstance(value, tuple):
        return tuple(inner if at == key else old for at, old in enumerate(value))
    changed = copy.copy(value)
    changed[key] = inner
    return changed


@dataclass(frozen=True)
class Call:
    """A call of an operation with some odd values; each may stand deep in its argument."""

    operation: str
    given: Mapping[str, Any]
    odd: tuple[tuple[str, tuple[Any, ...], Odd], ...]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments, made anew."""
        made = {
            name: queue.Queue() if isinstance(value, queue.Queue) else copy.deepcopy(value)
            for name, value in self.given.items()
        }
        for name, way, odd in self.odd:
            secret = f"{SECRET}-{name}"
            made[name] = replaced(made.get(name), way, odd.make(secret))
        return made

    def __repr__(self) -> str:
        given = ", ".join(f"{name}{list(way) or ''}={odd}" for name, way, odd in self.odd)
        return f"{self.operation}({given})"


def calls(samples: Mapping[str, Mapping[str, Any]]) -> st.SearchStrategy[Call]:
    """Return calls of every operation, each with one to three odd values."""
    found = operations()
    names = {name: parameters(method) for name, method in found.items()}
    ways = {
        name: {parameter: [(), *places(value)] for parameter, value in samples[name].items()}
        for name in found
    }

    @st.composite
    def call(draw: st.DrawFn) -> Call:
        name = draw(st.sampled_from(sorted(found)))
        chosen = draw(st.lists(st.sampled_from(names[name]), min_size=1, max_size=3, unique=True))
        odd = []
        for parameter in chosen:
            way = draw(st.sampled_from(ways[name].get(parameter, [()])))
            odd.append((parameter, way, draw(st.sampled_from(ODD))))
        return Call(name, samples[name], tuple(odd))

    return call()
