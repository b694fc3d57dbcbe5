"""Run the Python blocks of a page as a reader would type them into one file."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT, name_of, python_blocks
from tests.kit.hosts import own_loop

__all__ = ["run_blocks"]


def run_blocks(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Run the blocks in order in one namespace, and return what differs from the page, by file and line.

    A `text` block right after a Python block is that block's output, to the letter.
    """
    module = ModuleType(f"page_{page.stem.replace('-', '_').lower()}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    # The first blocks of some pages are `cinema.py`, which later blocks import.
    monkeypatch.setitem(sys.modules, "cinema", module)
    # Readers copy `oidc_pages.py` beside their server.
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "examples")])
    wrong: dict[str, str] = {}
    with own_loop():
        for block, output in python_blocks(page):
            # Blank lines in front give tracebacks the page's own line numbers.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
            capsys.readouterr()
            exec(code, vars(module))
            printed = capsys.readouterr().out
            if output is not None and printed.strip() != output.strip():
                wrong[f"{name_of(page)}:{block.line}"] = printed
    return wrong
