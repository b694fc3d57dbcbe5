"""The machine's own Chromium; the browsers that come with playwright are not needed."""

from typing import Final

from tests.kit.programs import find_chromium

__all__ = ["ARGUMENTS", "find_chromium"]

ARGUMENTS: Final = ["--no-sandbox", "--disable-gpu"]
"""Containers seldom allow the sandbox, and the pages are our own."""
