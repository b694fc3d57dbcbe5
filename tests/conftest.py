"""Fixtures of all tests: the event loop, the two eras of the protocol, and no certificates."""

import os
from collections.abc import Generator
from typing import Final

import pytest

from roundtrip.testing import Era
from tests.nightly import VARIABLE

_NIGHTLY_SECONDS: Final = 1800


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the profile that takes minutes: see CONTRIBUTING.md."""
    parser.addoption("--nightly", action="store_true", help="run what takes too long for every change, too")


def pytest_configure(config: pytest.Config) -> None:
    """Have property tests try more, where there is time."""
    if config.getoption("--nightly"):
        os.environ[VARIABLE] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `nightly`. It is not skipped: in CI a skipped test means that something is missing."""
    if config.getoption("--nightly"):
        for item in items:
            item.add_marker(pytest.mark.timeout(_NIGHTLY_SECONDS))
        return
    left_out = [item for item in items if item.get_closest_marker("nightly") is not None]
    if left_out:
        items[:] = [item for item in items if item.get_closest_marker("nightly") is None]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def era(roundtrip_era: Era) -> Era:
    """Every test that takes it runs once on the retry era and once on the live era."""
    return roundtrip_era


@pytest.fixture(scope="session", autouse=True)
def _no_certificates(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """Spare each HTTP client, here and in the processes started from here, reading all that the machine trusts."""
    # That takes a tenth of a second for each of some thousand clients, and none of them speaks TLS.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("no_certificates")))
        yield
