"""Commands of the page of the first project."""

from typing import Final

from tests.docs.pages import ROOT, blocks

__all__ = ["PAGE", "commands", "until_green"]

PAGE: Final = ROOT / "docs" / "loop.md"


def commands() -> list[str]:
    return [line for block in blocks(PAGE) if block.language == "bash" for line in block.text.splitlines()]


def until_green() -> list[str]:
    found = commands()
    return found[: found.index("pytest") + 1]
