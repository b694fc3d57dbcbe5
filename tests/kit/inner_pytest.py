"""Run pytest inside pytest, on tests for a small server."""

from typing import Final

import pytest

from roundtrip import testing

# An inner pytest unloads the modules that it imports first, and `testing` would keep their names.
for _name in testing.__all__:
    getattr(testing, _name)

__all__ = ["CINEMA", "QUIET", "run_pytest"]

QUIET: Final = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")

CINEMA: Final = """
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


def run_pytest(pytester: pytest.Pytester, *more: str) -> pytest.RunResult:
    """Run pytest in this process, with syrupy as in a new process."""
    with pytest.MonkeyPatch.context() as patch:
        # syrupy has one session per process, and the outer pytest's session must continue afterwards.
        patch.setattr("syrupy._syrupy", None)
        # syrupy lets the main process report unused snapshots, and takes this process for a worker.
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)
        return pytester.runpytest_inprocess(*QUIET, *more)
