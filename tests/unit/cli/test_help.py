"""Help of commands in terminals of several widths."""

import pytest

from roundtrip.cli import COMMANDS, main
from roundtrip.cli.command import filled
from tests.kit.tables import check_each

WIDE = 400


def help_of(command: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_fits_the_terminal_and_loses_no_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(command: str) -> None:
        whole = help_of(command, WIDE, monkeypatch, capsys)
        for width in (80, 100):
            text = help_of(command, width, monkeypatch, capsys)
            assert [line for line in text.splitlines() if len(line) > width] == []
            assert text.split() == whole.split()

    check_each(COMMANDS, check)


def test_paragraphs_and_tables_keep_their_form() -> None:
    filler = " ".join(["word"] * 18)
    text = (
        f"A text: {filler}\ngoes on.\n\n"
        f"signals:\n  TERM  {filler}\n        and the rest\n  INT   ends it\n\nshort\nlines"
    )
    rest = "word word word word word word word"
    assert filled(text, 60).splitlines() == [
        "A text: word word word word word word word word word word",
        f"{rest} word goes on.",
        "",
        "signals:",
        "  TERM  word word word word word word word word word word",
        f"        {rest} word and the rest",
        "  INT   ends it",
        "",
        "short",
        "lines",
    ]
    assert filled(text, WIDE) == text
