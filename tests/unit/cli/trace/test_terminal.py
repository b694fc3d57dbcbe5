"""The look of the views: plain, on terminals of every width, without colors, and in encodings that lack symbols."""

import io
import re
import sys

import pytest

from roundtrip.cli.trace.showing import show
from roundtrip.cli.trace.terminal import Column, Screen
from roundtrip.trace.reading.calls import Mark
from tests.kit.tables import check_each
from tests.kit.transcripts import AT, call_of
from tests.unit.cli.trace.shelf import retry_call

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Output(io.TextIOWrapper):
    """Stream that is a terminal or not."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def text(self) -> str:
        self.seek(0)
        return self.read()


@pytest.fixture(autouse=True)
def no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables that change the output."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "CLICOLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def shown(out: Output) -> str:
    show(call_of(*retry_call()), Screen(out), now=AT)
    return out.text


def test_only_terminals_get_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert COLOUR.search(shown(Output(terminal=True)))
    assert "\x1b" not in shown(Output(terminal=False))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in shown(Output(terminal=False))
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search(shown(Output(terminal=True)))


def test_terminal_without_rich_gets_the_words_of_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert shown(Output(terminal=True)) == shown(Output(terminal=False))


def test_terminals_of_any_width_show_the_words_of_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(columns: str) -> None:
        monkeypatch.setenv("COLUMNS", columns)
        text = ESCAPE.sub("", shown(Output(terminal=True)))
        assert max(map(len, text.splitlines())) <= max(20, int(columns))
        assert "Paperback" in text

    check_each(["1", "20", "41", "80"], check)
    monkeypatch.setenv("COLUMNS", "400")
    drawn = [line.rstrip() for line in ESCAPE.sub("", shown(Output(terminal=True))).splitlines()]
    assert drawn == shown(Output(terminal=False)).splitlines()


def table(columns: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", columns)
    out = Output(terminal=True)
    titles = [Column("call"), Column("when", drop=1), Column("tool", folds=True), Column("legs", right=True, drop=2)]
    Screen(out).table(
        titles, [["abcdefghijkl", "2026-11-21", "order", "3"], ["mnopqrstuvwx", "2026-11-22", "sell", "12"]]
    )
    return [line.rstrip() for line in ESCAPE.sub("", out.text).splitlines()]


def test_columns_are_dropped_by_weight_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert table("80", monkeypatch)[0].split() == ["call", "when", "tool", "legs"]
    assert table("36", monkeypatch)[0].split() == ["call", "when", "tool"]
    assert table("24", monkeypatch) == ["call          tool", "abcdefghijkl  order", "mnopqrstuvwx  sell"]


def test_symbols_become_ascii_where_the_encoding_lacks_them() -> None:
    text = shown(Output(terminal=False, encoding="ascii"))
    assert text.isascii()
    assert "* format  asked\n" in text
    assert "! format  asked again: reworded" in text
    assert "= size  reused" in text
    assert Screen(Output(terminal=False, encoding="latin-1")).symbol(Mark.PENDING) == "?"
    assert Screen(Output(terminal=False)).symbol(Mark.PENDING) == "○"


def test_recorded_text_is_spelled_out_and_stays_text() -> None:
    out = Output(terminal=False, encoding="ascii")
    Screen(out).line("Gdańsk ", ("日本", "red"))
    assert out.text == "Gda\\u0144sk \\u65e5\\u672c\n"
    for terminal in (True, False):
        out = Output(terminal=terminal)
        Screen(out).line("[red]:smile:[/red] [link=x]y[/link]")
        assert ESCAPE.sub("", out.text).rstrip() == "[red]:smile:[/red] [link=x]y[/link]"
