"""Run pytest inside pytest, on tests of a small server."""

from typing import Final

import pytest

from roundtrip import testing

# A pytest inside forgets the modules that it is the first to import, and `testing` would keep names of them.
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
    """Run pytest in this process, with syrupy as at the start of a process."""
    with pytest.MonkeyPatch.context() as patch:
        # syrupy keeps one session in each process, and that of the pytest outside has to go on afterwards.
        patch.setattr("syrupy._syrupy", None)
        # It leaves it to the main process to report unused snapshots, and takes this one for a worker of it.
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)
        return pytester.runpytest_inprocess(*QUIET, *more)
