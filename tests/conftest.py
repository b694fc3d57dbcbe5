"""Fixtures of all tests: the event loop, the two eras of the protocol, and no certificates."""

from collections.abc import Generator

import pytest

from roundtrip.testing import Era


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
