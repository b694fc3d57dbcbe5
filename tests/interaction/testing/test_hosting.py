"""Servers on ports of this machine, several in one process."""

import signal

import anyio
import pytest

from roundtrip import Server
from roundtrip.testing import Era, User, served

pytestmark = pytest.mark.anyio


def cinema() -> Server[None]:
    server = Server[None]("cinema")

    @server.tool()
    async def book(film: str) -> str:
        return film

    return server


async def test_the_signals_stay_the_test_runner_s() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with served(cinema()) as url:
        await User(url).call("book", film="Solaris")
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.filterwarnings("error")
async def test_servers_may_end_in_any_order_and_others_follow(roundtrip_era: Era) -> None:
    ends = [anyio.Event(), anyio.Event()]
    begun = [anyio.Event(), anyio.Event()]
    over = [anyio.Event(), anyio.Event()]

    async def serve(number: int) -> None:
        async with served(cinema()) as url:
            await User(url).call("book", film="Solaris")
            begun[number].set()
            await ends[number].wait()
        over[number].set()

    async with anyio.create_task_group() as group:
        for number in (0, 1):
            group.start_soon(serve, number)
            await begun[number].wait()
        # The first ends first, while the second still serves.
        for number in (0, 1):
            ends[number].set()
            await over[number].wait()
    async with served(cinema()) as url:
        call = await User(url).call("book", film="Stalker")
    assert call.value == "Stalker"
