"""What commands print for people."""

import io

import pytest
from rich.console import Console

from hermes_orm.cli import display


def printed(width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, no_color=True)
    monkeypatch.setattr(display, "console", lambda: console)
    rows = [("an-id-of-some-length", "1,234", "a title that is long enough to be cut at the end")]
    shown = display.table(("id", "number", "title"), rows, right=("number",), optional=("number",))
    with console.capture() as capture:
        console.print(shown)
    return capture.get().splitlines()


def test_tables_fit_and_keep_what_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for width, has_number, is_whole in [(100, True, True), (60, True, False), (48, False, False)]:
        *_, row = printed(width, monkeypatch)
        assert len(row) <= width
        assert "an-id-of-some-length" in row
        assert ("1,234" in row, "at the end" in row) == (has_number, is_whole)


def test_stored_text_controls_no_terminal() -> None:
    assert display.line("a\x1b[2J\r\n\tb\x9b1m\u202e") == "a\ufffd[2J b\ufffd1m\ufffd"
    assert display.plain("a\n  b\tc") == "a\n  b\tc"
    assert display.json_text({"k": "蓄\ud800"}) == '{"k": "\\u84c4\\ud800"}'
    assert [display.dollars(cost) for cost in (None, 0, 0.0012, 1234.5)] == [
        "",
        "",
        "$0.0012",
        "$1,234.50",
    ]
    assert display.moment(1e300) == "?"
    assert display.counted(1, "session") == "1 session"
