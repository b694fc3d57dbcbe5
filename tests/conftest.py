"""Shared fixtures: the event loop, both protocol eras, and no certificates."""

import gc
import os
import re
import signal
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import httpcore2
import pytest

from roundtrip.testing import Era
from tests.kit.held_threads import Held
from tests.kit.log_budgets import refill_budgets, watch_budgets
from tests.kit.programs import describe_missing, missing_program
from tests.kit.tiers import Tier, adds_to_first, current_tier, is_in_tier, tier_of

_FULL_SECONDS: Final = 600
_NIGHTLY_SECONDS: Final = 1800
_OF_FULL: Final = re.compile("No module named '(?!roundtrip|tests)")
_NEEDS_FULL: Final = "needs packages of the extra full"
_LEASE_SECONDS: Final = 30.0
_LOADED_FIRST: Final = (httpcore2,)
"""`httpx2` keeps this module's errors. If a `pytester` test were the first to load it, it would be loaded twice."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the tier options: see CONTRIBUTING.md."""
    parser.addoption("--full", action="store_true", help="also run tests with processes, servers and browsers")
    parser.addoption("--without-first", action="store_true", help="with --full: leave out the tests of the first tier")
    parser.addoption("--nightly", action="store_true", help="run all tests, and property tests with more examples")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the tier, and let tests interrupt their processes."""
    if not hasattr(config, "workerinput"):
        tier_of(config)
        if (config.getoption("--full") or config.getoption("--nightly")) and find_spec("fastmcp") is None:
            raise pytest.UsageError("--full needs more packages; run: .venv/bin/pip install -e '.[full]'")
    # A suite in the background ignores the signal, and its child processes would inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    watch_budgets()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skip folders in other tiers, so that their modules are not imported."""
    return True if collection_path.is_dir() and not is_in_tier(collection_path, current_tier()) else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that needs packages from the extra `full`, if only the extra `test` is installed."""
    report = yield
    if report.failed and _OF_FULL.search(str(report.longrepr)) and find_spec("fastmcp") is None:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {_NEEDS_FULL}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Skip a test that imports such a package in a code block or in its body."""
    try:
        yield
    except ImportError as error:
        missing = f"{error.__cause__ or error}"
        if find_spec("fastmcp") is not None or not _OF_FULL.search(missing):
            raise
        pytest.skip(_NEEDS_FULL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tier's tests. Above the first tier, give tests more time, and spread those with a browser."""
    tier = current_tier()
    if tier is not Tier.NIGHTLY:
        deselect_other_tiers(config, items)
    if tier is not Tier.FIRST:
        # Processes start slowly on a busy machine.
        seconds = _NIGHTLY_SECONDS if tier is Tier.NIGHTLY else _FULL_SECONDS
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(seconds))
        items[:] = spread(items)


def deselect_other_tiers(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need a program in the first tier, and those of the first tier with `--without-first`."""
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        if current_tier() is Tier.FIRST:
            is_left_out = item.get_closest_marker("needs") is not None
        else:
            is_left_out = config.getoption("--without-first") and not adds_to_first(item)
        (left_out if is_left_out else kept).append(item)
    if left_out:
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


def spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Mix the files of browser tests evenly with the others: four browsers on two cores take twice as long as two."""
    places: dict[Path, float] = {}
    for in_browser in (True, False):
        group = [item for item in items if ("browser" in item.path.parts) is in_browser]
        for at, item in enumerate(group):
            places.setdefault(item.path, at / len(group))
    return sorted(items, key=lambda item: places[item.path])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose program is not installed."""
    if (program := missing_program(item)) is not None:
        pytest.skip(f"needs {program}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count skipped tests by reason, in one line."""
    reports = terminalreporter.stats.get("skipped", [])
    line = describe_missing(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if line is not None:
        terminalreporter.write_line(line)


def pytest_collection_finish() -> None:
    """Exclude everything imported so far from garbage collection, which took a seventh of the time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Restore the lease that calls have, and the budget that log lines have.

    Servers for other processes shorten the lease. So do tests that create such a server themselves.
    """
    refill_budgets()
    lease: Any = sys.modules.get("roundtrip.ledger.lease")
    if lease is not None:
        lease.LEASE_SECONDS = _LEASE_SECONDS


def pytest_xdist_auto_num_workers() -> int:
    """Run more processes than there are cores, because many tests wait."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 * cores


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def era(roundtrip_era: Era) -> Era:
    """Run the test once in the retry era and once in the live era."""
    return roundtrip_era


@pytest.fixture
def held() -> Generator[Held]:
    """Yield a function that holds its threads until the test releases them or ends."""
    held = Held()
    yield held
    held.release.set()


@pytest.fixture(scope="session", autouse=True)
def _no_certificates(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """Keep HTTP clients, also in child processes, from reading the machine's certificates."""
    # Reading them takes 0.1 s in each of several thousand clients, and none of these uses TLS.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("no_certificates")))
        yield
