"""Help of commands in terminals of several widths."""

import pytest

from roundtrip.cli import COMMANDS, main
from roundtrip.cli.command import filled

WIDE = 400


def help_of(command: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_terminal_and_loses_no_word(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = help_of(command, WIDE, monkeypatch, capsys)
    for width in (80, 100):
        text = help_of(command, width, monkeypatch, capsys)
        assert [line for line in text.splitlines() if len(line) > width] == []
        assert text.split() == whole.split()


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
