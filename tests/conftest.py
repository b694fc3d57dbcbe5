"""Fixtures of all tests: the event loop, the two eras of the protocol, and no certificates."""

import gc
import os
import signal
import sys
from collections.abc import Generator
from typing import Any, Final

import httpcore2
import pytest

from roundtrip.testing import Era
from tests.held_threads import Held
from tests.nightly import VARIABLE

_NIGHTLY_SECONDS: Final = 1800
_LEASE_SECONDS: Final = 30.0
_LOADED_FIRST: Final = (httpcore2,)
"""`httpx2` keeps the errors of this module. Loaded by a test with `pytester`, it would be loaded again later."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the profile that takes minutes: see CONTRIBUTING.md."""
    parser.addoption("--nightly", action="store_true", help="also run tests that are too slow for every change")


def pytest_configure(config: pytest.Config) -> None:
    """Let property tests try more examples at night, and tests interrupt their processes."""
    if config.getoption("--nightly"):
        os.environ[VARIABLE] = "1"
    # A suite in the background ignores the signal, and its child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked `nightly`. They are not skipped: in CI, a skipped test means that something is missing.

    Some of them write pages with `--snapshot-update`.
    """
    if config.getoption("--nightly") or config.getoption("update_snapshots", default=False):
        for item in items:
            item.add_marker(pytest.mark.timeout(_NIGHTLY_SECONDS))
        return
    left_out = [item for item in items if item.get_closest_marker("nightly") is not None]
    if left_out:
        items[:] = [item for item in items if item.get_closest_marker("nightly") is None]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Leave what is imported by now out of all later collections of garbage, which took a seventh of the time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Give tasks their lease back: servers for other processes shorten it, also where a test makes one itself."""
    claim: Any = sys.modules.get("roundtrip.server.tasks.claim")
    if claim is not None:
        claim.LEASE_SECONDS = _LEASE_SECONDS


def pytest_xdist_auto_num_workers() -> int:
    """Run more processes than there are cores, because many tests wait for other processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 * cores


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def era(roundtrip_era: Era) -> Era:
    """Run the test once on the retry era and once on the live era."""
    return roundtrip_era


@pytest.fixture
def held() -> Generator[Held]:
    """Yield a function that holds its threads until the test, or its end, lets them go."""
    held = Held()
    yield held
    held.release.set()


@pytest.fixture(scope="session", autouse=True)
def _no_certificates(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """Prevent HTTP clients, here and in processes started from here, from reading the machine's certificates."""
    # Reading them takes 0.1 s for each of some thousand clients, none of which uses TLS.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("no_certificates")))
        yield
