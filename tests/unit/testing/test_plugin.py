"""The plugin, tried by running pytest inside pytest."""

import pytest

pytest_plugins = ["pytester"]

SERVER = """
from typing import Annotated
from pydantic import BaseModel
import pytest
from roundtrip import Elicit, Resolve, Server
from roundtrip.testing import User

pytestmark = pytest.mark.anyio
server = Server("cinema")

@pytest.fixture
def anyio_backend():
    return "asyncio"

class Seat(BaseModel):
    row: str

async def seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)

@server.tool()
async def book(film: str, seat: Annotated[Seat, Resolve(seat)]) -> str:
    return f"{film}, {seat.row}"
"""


def run(pytester: pytest.Pytester, test: str) -> pytest.RunResult:
    pytester.makepyfile(SERVER + test)
    return pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "-p", "no:xdist")


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


def test_a_test_without_the_mark_runs_once_on_the_retry_era(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
async def test_it():
    assert (await User(server, {"seat": {"row": "back"}}).call("book", film="Solaris")).legs == 2
""",
    )
    result.assert_outcomes(passed=1)


def test_an_era_that_does_not_exist_is_an_error_that_names_those_there_are(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.mark.roundtrip(eras="stone age")
async def test_it():
    pass
""",
    )
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*eras are 'retry', 'live', 'both'*"])
