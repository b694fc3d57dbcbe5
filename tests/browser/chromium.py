"""The machine's own Chromium; the browsers that come with playwright are not needed."""

import shutil
from typing import Final

__all__ = ["ARGUMENTS", "find_chromium"]

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

ARGUMENTS: Final = ["--no-sandbox", "--disable-gpu"]
"""Containers seldom allow the sandbox, and the pages are our own."""


def find_chromium() -> str | None:
    """Return the path of the browser, or None."""
    return next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)
