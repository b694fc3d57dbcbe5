"""Tiers of tests: the first needs only Python, `--full` runs all, and `--nightly` tries more examples."""

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
"""Names of folders, at any depth, of the full tier.

Their tests start processes, need packages of the extra `full`, or repeat for many values (`thorough`) what a test of
the first tier shows for some.
"""

_SAMPLED_FOLDERS: Final = frozenset(("combinations", "property", "simulation"))
"""Names of folders whose tests try fewer examples in the first tier."""

NIGHTLY_FOLDER: Final = "nightly"
"""The name of folders, at any depth, whose tests take minutes."""

_VARIABLE: Final = "ROUNDTRIP_TESTS_TIER"
"""Tells the tier to worker processes, and to modules while they are imported."""


class Tier(IntEnum):
    """A part of the tests; each tier contains the ones before it."""

    FIRST = 0
    FULL = 1
    NIGHTLY = 2


def tier_of(config: pytest.Config) -> Tier:
    """Return the tier of a run, and tell it to everything that the run imports and starts.

    All tests of a folder run if the command line names the folder, and all rows of a table that a run writes.
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
    """Return the tier of this process."""
    return Tier[os.environ.get(_VARIABLE, Tier.FIRST.name)]


def is_in_tier(folder: Path, tier: Tier) -> bool:
    """Return True if the tests of a folder run in a tier."""
    if folder.name == NIGHTLY_FOLDER:
        return tier >= Tier.NIGHTLY
    return tier >= Tier.FULL or folder.name not in FULL_FOLDERS


def adds_to_first(item: pytest.Item) -> bool:
    """Return True if a test shows more in the full tier than in the first one, or runs only in the full tier."""
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
