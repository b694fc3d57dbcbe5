"""The pytest plugin: a mark that runs tests on both eras of the protocol."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from roundtrip.clients.legs import Era
from roundtrip.testing.chosen import CHOSEN, Choice

__all__ = ["pytest_configure", "pytest_generate_tests", "roundtrip_choice", "roundtrip_era"]

_ERAS: Final = {"retry": (Era.RETRY,), "live": (Era.LIVE,), "both": (Era.RETRY, Era.LIVE)}
_FIXTURE: Final = "roundtrip_choice"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", "roundtrip(eras): run the test on these eras of the protocol: 'retry', 'live' or 'both'"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test once on each of its eras, and one that asks for the era on both."""
    mark = metafunc.definition.get_closest_marker("roundtrip")
    if mark is None and "roundtrip_era" not in metafunc.fixturenames:
        return
    chosen: Any = "both" if mark is None else mark.kwargs.get("eras", mark.args[0] if mark.args else "both")
    if chosen not in _ERAS:
        raise pytest.UsageError(f"@pytest.mark.roundtrip(eras={chosen!r}): eras are {', '.join(map(repr, _ERAS))}")
    metafunc.parametrize(_FIXTURE, _ERAS[chosen], ids=lambda era: cast("Era", era).name.lower(), indirect=True)


# For every test, as only fixtures that a test has can be parametrized.
@pytest.fixture(autouse=True)
def roundtrip_choice(request: pytest.FixtureRequest) -> Generator[Choice]:
    """How the users of the test speak."""
    choice = replace(CHOSEN.get(), era=cast("Era", getattr(request, "param", CHOSEN.get().era)))
    before = CHOSEN.set(choice)
    yield choice
    CHOSEN.reset(before)


@pytest.fixture
def roundtrip_era(roundtrip_choice: Choice) -> Era:
    """The era that the test runs on, and that its users speak. A test that takes it runs on both."""
    return roundtrip_choice.era
