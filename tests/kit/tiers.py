"""Test tiers: the first needs only Python, `--full` runs all tests, and `--nightly` tries more examples."""

import os
from enum import IntEnum
from pathlib import Path
from typing import Final

import pytest

__all__ = [
    "FULL_FOLDERS",
    "NIGHTLY_FOLDER",
    "Tier",
    "adds_to_first",
    "current_tier",
    "examples",
    "is_in_tier",
    "tier_of",
]

TESTS: Final = Path(__file__).resolve().parents[1]
FULL_FOLDERS: Final = frozenset(
    (
        "adapters",
        "browser",
        "chaos",
        "clients",
        "conformance",
        "exhaustive",
        "fastmcp_suite",
        "package",
        "processes",
        "sdk",
        "serverless",
        "thorough",
    )
)
"""Names of full-tier folders, at any depth.

Their tests start processes, need packages from the extra `full`, or repeat first-tier tests for many values
(`thorough`).
"""

_SAMPLED_FOLDERS: Final = frozenset(("combinations", "property", "simulation"))
"""Names of folders whose tests try fewer examples in the first tier."""

NIGHTLY_FOLDER: Final = "nightly"
"""The name of folders, at any depth, whose tests take minutes."""

_VARIABLE: Final = "ROUNDTRIP_TESTS_TIER"
"""Passes the tier to worker processes, and to modules during import."""


class Tier(IntEnum):
    """A group of tests. Each tier contains the previous ones."""

    FIRST = 0
    FULL = 1
    NIGHTLY = 2


def tier_of(config: pytest.Config) -> Tier:
    """Return a run's tier, and pass it to everything that the run imports and starts.

    If the command line names a folder, all its tests run. If a run writes a table, all its rows run.
    """
    if config.getoption("--nightly") or config.getoption("update_snapshots", default=False):
        tier = Tier.NIGHTLY
    elif config.getoption("--full") or not any(_holds_all(argument) for argument in config.args):
        tier = Tier.FULL
    else:
        tier = Tier.FIRST
    os.environ[_VARIABLE] = tier.name
    return tier


def _holds_all(argument: str) -> bool:
    path = Path(argument.partition("::")[0]).resolve()
    return path == TESTS or path in TESTS.parents


def current_tier() -> Tier:
    """Return this process's tier."""
    return Tier[os.environ.get(_VARIABLE, Tier.FIRST.name)]


def is_in_tier(folder: Path, tier: Tier) -> bool:
    """Return True if a folder's tests run in a tier."""
    if folder.name == NIGHTLY_FOLDER:
        return tier >= Tier.NIGHTLY
    return tier >= Tier.FULL or folder.name not in FULL_FOLDERS


def adds_to_first(item: pytest.Item) -> bool:
    """Return True if a test checks more in the full tier than in the first one, or runs only in the full tier."""
    folders = {folder.name for folder in item.path.parents}
    return bool(folders & (FULL_FOLDERS | _SAMPLED_FOLDERS)) or item.get_closest_marker("needs") is not None


def examples(number: int) -> int:
    """Return how many examples a property test tries: a third in the first tier, ten times as many at night."""
    match current_tier():
        case Tier.FIRST:
            return max(number // 3, 5)
        case Tier.FULL:
            return number
        case Tier.NIGHTLY:
            return number * 10
