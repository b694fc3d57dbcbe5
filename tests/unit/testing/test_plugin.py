"""The plugin, run by pytest inside pytest."""

import tomllib
from pathlib import Path
from typing import Final

import pytest

from roundtrip import pytest_plugin
from tests.kit.inner_pytest import CINEMA, QUIET

pytest_plugins = ["pytester"]

FIXTURES: Final = {"call_snapshot", "clock", "overrides", "roundtrip_choice", "roundtrip_era", "trace", "wire_snapshot"}


def run(pytester: pytest.Pytester, test: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(CINEMA + test)
    return pytester.runpytest_inprocess(*QUIET, *options)


def test_a_long_lived_asynchronous_fixture_takes_no_choice_away(pytester: pytest.Pytester) -> None:
    """The task that runs asynchronous tests keeps the context of its first fixture."""
    result = run(
        pytester,
        """
RAN = []

@server.tool()
async def count(seat: Annotated[Seat, Resolve(lambda: Elicit("Which row?", Seat))]) -> str:
    RAN.append(seat.row)
    return "counted"

@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"

@pytest.fixture(scope="module")
async def database():
    yield 1

async def test_first(database):
    pass

@pytest.mark.roundtrip(eras="live", hostile=["duplicate"])
async def test_it(trace):
    RAN.clear()
    call = await User(server, {re.compile("row"): {"row": "back"}}).call("count")
    assert call.legs == 1
    assert len(trace.calls) == 1
    assert RAN == ["back"]
""".replace("RAN = []", "import re\nRAN = []"),
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["FAILED *test_it?duplicate?*"])


def test_a_mark_that_has_no_effect_is_an_error(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import unittest

@pytest.mark.parametrize("row", [pytest.param("back", marks=pytest.mark.roundtrip(eras="live"))])
async def test_it(row):
    pass

class TestCinema(unittest.TestCase):
    @pytest.mark.roundtrip(eras="live")
    def test_method(self):
        pass

@pytest.mark.roundtrip(eras="live")
async def test_without_a_mark_of_anyio():
    pass

pytestmark = []
""",
    )
    result.assert_outcomes(errors=2, failed=1)
    result.stdout.fnmatch_lines(["*roundtrip has no effect here*", "no marker runs this async test; add *anyio*"])


def test_a_test_that_calls_nothing_through_its_network_fails(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.roundtrip(eras="retry", hostile=["duplicate"])
async def test_it(calls):
    if calls:
        await User(server, {"seat": {"row": "back"}}).call("book", film="Solaris")
""",
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*no call of this test went through the network 'duplicate'*"])


def test_entry_point_names_the_plugin() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"roundtrip": pytest_plugin.__name__}


def test_every_fixture_and_option_works(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import time
from roundtrip.testing import Era

CINEMA = Server("cinema", keys=[b"k" * 32])

async def price():
    return 12

async def pays(price: Annotated[int, Resolve(price)]) -> Elicit[bool]:
    return Elicit(f"It is {price}. Do you pay?", bool)

@CINEMA.tool()
async def buy(pays: Annotated[bool, Resolve(pays)]) -> str:
    return f"paid: {pays}"

def make(keys):
    return CINEMA

@pytest.mark.roundtrip(
    eras="retry", hostile=["hop", "drop", "deploy", "eavesdrop"], without=["drop"], deploy=make,
    secrets=["4711"], over="http",
)
async def test_everything(
    call_snapshot, clock, overrides, roundtrip_choice, roundtrip_era, trace, wire_snapshot, request
):
    assert not {FIXTURES} - set(request.fixturenames)
    assert time.time() == clock.now
    overrides(CINEMA, {price: lambda: 8})
    call = await User(make, {"pays": True}, allow_error=True).call("buy")
    assert roundtrip_choice.over == "http"
    assert roundtrip_era is Era.RETRY
    assert call.questions[0].message == "It is 8. Do you pay?"
    if not roundtrip_choice.network:
        assert trace.call.tool == "buy"
        assert call == call_snapshot
        assert call == wire_snapshot
""".replace("{FIXTURES}", str(FIXTURES)),
        "--snapshot-update",
    )
    result.assert_outcomes(passed=4)
    assert {file.suffix for file in pytester.path.rglob("__snapshots__/*/*")} == {".txt", ".wire"}
    assert "@pytest.mark.roundtrip(eras='both'" in pytester.runpytest_inprocess("--markers").stdout.str()
