"""Programs that tests use besides Python, and the marker for tests that need one."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["describe_missing", "find_chromium", "is_found", "missing_program", "needs"]


def find_chromium() -> str | None:
    """Return the path to Chromium or Chrome."""
    return _find("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def _find(*names: str) -> str | None:
    return next((path for name in names if (path := shutil.which(name)) is not None), None)


def _has_postgres() -> bool:
    return _find("initdb") is not None or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


_PROGRAMS: Final[dict[str, Callable[[], Any]]] = {
    "chromium": find_chromium,
    "fastmcp": lambda: find_spec("fastmcp"),
    "fish": lambda: _find("fish"),
    "nginx": lambda: _find("nginx"),
    "node": lambda: _find("node"),
    "postgres": _has_postgres,
    "promtool": lambda: _find("promtool"),
    "redis": lambda: _find("redis-server", "valkey-server"),
    "systemd-analyze": lambda: _find("systemd-analyze"),
    "wrk": lambda: _find("wrk"),
    "zsh": lambda: _find("zsh"),
}


@cache
def is_found(program: str) -> bool:
    """Return True if a program in the table is installed."""
    return bool(_PROGRAMS[program]())


def needs(*programs: str) -> pytest.MarkDecorator:
    """Mark a test, module or parameter that needs programs. It runs in the full tier, where they are installed."""
    unknown = set(programs) - set(_PROGRAMS)
    if unknown:
        raise ValueError(f"programs must be among {sorted(_PROGRAMS)}, got {sorted(unknown)}")
    return pytest.mark.needs(*programs)


def missing_program(item: pytest.Item) -> str | None:
    """Return the name of a missing program that a test needs."""
    needed = (program for mark in item.iter_markers("needs") for program in mark.args)
    return next((program for program in needed if not is_found(program)), None)


def describe_missing(reasons: Iterable[str]) -> str | None:
    """Return one line that counts skipped tests by reason."""
    counts = Counter(reasons)
    if not counts:
        return None
    return "skipped: " + ", ".join(f"{count} ({reason})" for reason, count in sorted(counts.items()))
