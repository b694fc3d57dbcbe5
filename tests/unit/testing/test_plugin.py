"""The plugin, run by pytest inside pytest."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from roundtrip import pytest_plugin
from tests.kit.inner_pytest import CINEMA, QUIET

pytest_plugins = ["pytester"]

UNUSED: Final = """
import sys
import pytest
exit_code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "roundtrip.pytest_plugin", *sys.argv[1:]])
print("exit code", int(exit_code))
print(*sorted(sys.modules))
"""

FIXTURES: Final = {name for name in pytest_plugin.__all__ if not name.startswith("pytest_")}


def run(pytester: pytest.Pytester, test: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(CINEMA + test)
    return pytester.runpytest_inprocess(*QUIET, *options)


def test_a_marked_test_runs_on_each_era(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
LEGS = []

@pytest.mark.roundtrip(eras="both")
async def test_it():
    call = await User(server, {"seat": {"row": "back"}}).call("book", film="Solaris")
    assert call.value == "Solaris, back"
    LEGS.append(call.legs)

def test_that_both_were_there():
    assert LEGS == [2, 1]
""",
    )
    result.assert_outcomes(passed=3)


def test_an_unanswered_question_fails_the_test_and_names_it(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.roundtrip(eras="both")
async def test_it():
    await User(server).call("book", film="Solaris")
""",
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*nothing in answers= fits the question 'seat': 'Which row for Solaris[?]'*"])


def test_unmarked_test_runs_once_on_the_retry_era(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
async def test_it():
    assert (await User(server, {"seat": {"row": "back"}}).call("book", film="Solaris")).legs == 2
""",
    )
    result.assert_outcomes(passed=1)


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


def test_a_mark_that_comes_too_late_is_an_error(pytester: pytest.Pytester) -> None:
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
""",
    )
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*roundtrip has no effect here*"])


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


def test_unused_plugin_imports_two_small_modules(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", UNUSED, "--rootdir=.", "test_one.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    *_, exit_code, modules = done.stdout.splitlines()
    assert exit_code == "exit code 0"
    imported = set(modules.split())
    assert {name for name in imported if name.startswith("roundtrip")} == {"roundtrip", "roundtrip.pytest_plugin"}
    assert not imported & {"anyio", "hypothesis", "mcp", "mcp_types", "pydantic", "syrupy"}


def test_entry_point_names_the_plugin() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"roundtrip": pytest_plugin.__name__}


def test_every_fixture_and_option_works(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import time
from roundtrip.testing import Era
from tests.unit.testing.test_plugin import FIXTURES

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
    assert not FIXTURES - set(request.fixturenames)
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
""",
        "--snapshot-update",
    )
    result.assert_outcomes(passed=4)
    assert {file.suffix for file in pytester.path.rglob("__snapshots__/*/*")} == {".txt", ".wire"}
    assert "@pytest.mark.roundtrip(eras='both'" in pytester.runpytest_inprocess("--markers").stdout.str()
