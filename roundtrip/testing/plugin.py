"""The pytest plugin: `@pytest.mark.roundtrip(eras="both")` runs a test on each era of the protocol."""

from collections.abc import Generator
from typing import Any, Final, cast

import pytest

from roundtrip.testing.eras import CHOSEN, Era

__all__ = ["pytest_configure", "pytest_generate_tests", "roundtrip_era"]

_ERAS: Final = {"retry": (Era.RETRY,), "live": (Era.LIVE,), "both": (Era.RETRY, Era.LIVE)}
_FIXTURE: Final = "roundtrip_era"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", "roundtrip(eras): run the test on these eras of the protocol: 'retry', 'live' or 'both'"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test once on each of its eras."""
    mark = metafunc.definition.get_closest_marker("roundtrip")
    if mark is None:
        return
    chosen: Any = mark.kwargs.get("eras", mark.args[0] if mark.args else "both")
    if chosen not in _ERAS:
        raise pytest.UsageError(f"@pytest.mark.roundtrip(eras={chosen!r}): eras are {', '.join(map(repr, _ERAS))}")
    metafunc.parametrize(_FIXTURE, _ERAS[chosen], ids=lambda era: cast("Era", era).name.lower(), indirect=True)


# For every test, as only fixtures that a test has can be parametrized.
@pytest.fixture(autouse=True)
def roundtrip_era(request: pytest.FixtureRequest) -> Generator[Era]:
    """The era that the test runs on, and that its users speak."""
    era = cast("Era", getattr(request, "param", CHOSEN.get()))
    before = CHOSEN.set(era)
    yield era
    CHOSEN.reset(before)
