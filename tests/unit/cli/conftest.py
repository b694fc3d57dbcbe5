"""Provide the parsers of all commands, and a folder that is the current one, and in which modules are found."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roundtrip.cli import make_parser
from roundtrip.cli.parsing import OptionsAnywhere


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    return tmp_path


def parsers(parser: OptionsAnywhere, *words: str) -> Iterator[tuple[tuple[str, ...], OptionsAnywhere]]:
    yield words, parser
    for name, command in parser.commands().items():
        yield from parsers(command, *words, name)


@pytest.fixture(scope="module")
def whole() -> dict[tuple[str, ...], OptionsAnywhere]:
    """Return the parsers of all commands, by their words."""
    parser = make_parser()
    parser.prepare_all()
    return dict(parsers(parser))
