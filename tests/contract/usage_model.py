"""Token usage as the specification tells it, in plain Python."""

from typing import Any

from hermes_orm.dialects.accounting import COUNTERS, ROUTE

SUMS = (*COUNTERS, "estimated_cost_usd")


def possible(told: dict[str, Any], name: str) -> Any:
    """A number of a report: None when it is refused, 0 when it is not given."""
    value = told.get(name) or 0
    return value if 0 <= value < 1e100 else None


class Ledger:
    """Sums and routes of sessions, and the sums of usage rows by their keys."""

    def __init__(self) -> None:
        self.sessions: dict[str, dict[str, Any]] = {}
        self.used: dict[tuple[str, ...], list[Any]] = {}

    def session(self, session_id: str) -> dict[str, Any]:
        """The row of a session, created if need be."""
        blank = {**dict.fromkeys(SUMS, 0), **dict.fromkeys(ROUTE)}
        return self.sessions.setdefault(session_id, blank)

    def route(self, session_id: str, provider: str | None) -> None:
        """`update_session_billing_route`."""
        if session_id in self.sessions:
            self.sessions[session_id] |= {"billing_provider": provider, "billing_base_url": "u"}

    def auxiliary(self, session_id: str, model: str | None) -> None:
        """`record_auxiliary_usage` of one token."""
        self.session(session_id)
        sums = [int(name in ("input_tokens", "api_call_count")) for name in SUMS]
        self._spend((session_id, model or "unknown", "", "", "", "title"), sums)

    def report(self, session_id: str, told: dict[str, Any]) -> None:
        """`update_token_counts`."""
        row = self.session(session_id)
        numbers = {name: possible(told, name) for name in SUMS}
        is_accounted = any(numbers.values()) or bool(possible(told, "actual_cost_usd"))
        self._answered(row, {name: told.get(name) for name in ROUTE}, is_accounted)
        if told.get("absolute"):
            row |= {name: number for name, number in numbers.items() if number is not None}
            return
        for name, number in numbers.items():
            row[name] += number or 0
        if any(numbers.values()):
            model, *route = (told.get(name) or row[name] or "" for name in ROUTE)
            key = (session_id, model or "unknown", *route, "")
            self._spend(key, [number or 0 for number in numbers.values()])

    def _answered(self, row: dict[str, Any], asked: dict[str, Any], is_accounted: bool) -> None:
        is_whole = asked["model"] and asked["billing_provider"]
        is_first = is_accounted and not row["api_call_count"]
        if is_whole and is_first and any(row[name] != asked[name] for name in ROUTE[:2]):
            row |= asked
        for name in ROUTE if is_accounted else ROUTE[:1]:
            if row[name] is None:
                row[name] = asked[name]

    def _spend(self, key: tuple[str, ...], sums: list[Any]) -> None:
        before = self.used.get(key, [0] * len(SUMS))
        self.used[key] = [old + new for old, new in zip(before, sums, strict=True)]
