"""Errors of command lines with a mistake, and the help of commands in terminals of several widths."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from roundtrip.cli import COMMANDS, main
from roundtrip.cli.command import wrap_text
from tests.kit.tables import check_each


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the output for wrong arguments."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_unknown_option_is_reported_with_its_command_usage(capsys: pytest.CaptureFixture[str]) -> None:
    def check(arguments: tuple[str, ...], command: str) -> None:
        said = told(capsys, *arguments, "--bogus")
        assert said.startswith(f"usage: roundtrip {command} ")
        assert said.endswith(f"roundtrip {command}: error: unrecognized arguments: --bogus\n")

    check_each([(("serve", "shop.py:server"), "serve"), (("trace", "ls", "calls.jsonl"), "trace ls")], check)
    assert told(capsys, "trace", "show").endswith("the following arguments are required: ID\n")
    assert "did you mean" not in told(capsys, "zzz")


def test_misspelled_word_is_answered_with_the_one_meant(capsys: pytest.CaptureFixture[str]) -> None:
    def check(arguments: tuple[str, ...], meant: str) -> None:
        assert told(capsys, *arguments).endswith(f"; did you mean {meant!r}?\n")

    check_each(
        [
            (("serv",), "serve"),
            (("tasks", "ls"), "calls stored --server SERVER"),
            (("explain", "last"), "trace explain"),
            (("playground", "shop.py"), "dev"),
            (("trace", "lst"), "ls"),
            (("trace", "page"), "export --html"),
            (("keys", "nwe"), "new"),
            (("--versoin",), "--version"),
            (("serve", "shop.py:server", "--wrokers", "2"), "--workers"),
            (("trace", "ls", "--jsn"), "--json"),
            (("trace", "--hlep"), "--help"),
            (("graph", "--format", "mremaid"), "mermaid"),
        ],
        check,
    )


def test_unreadable_folder_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # Root may read every folder, so the error is made here.
    monkeypatch.setattr(Path, "stat", Mock(side_effect=PermissionError(13, "Permission denied", "shut")))
    assert main(["serve", "shut/shop.py"]) == 2
    assert capsys.readouterr().err == "roundtrip serve: cannot open 'shut': Permission denied\n"


def test_command_without_arguments_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    def check(arguments: tuple[str, ...], listed: str) -> None:
        said = told(capsys, *arguments)
        assert listed in said
        assert "error:" not in said

    check_each([((), "  serve "), (("trace",), "  explain "), (("keys",), "  rotate ")], check)


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
    assert wrap_text(text, 60).splitlines() == [
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
    assert wrap_text(text, WIDE) == text
