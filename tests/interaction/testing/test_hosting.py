"""Servers on ports of this machine."""

import signal

import anyio
import pytest

from roundtrip import Server
from roundtrip.testing import User, served
from tests.kit.waiting import WAIT

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


async def test_failure_in_a_block_reaches_its_author_and_spoils_no_later_server() -> None:
    async def fail_while_serving() -> None:
        async with served(cinema()) as url:
            assert (await User(url).call("book", film="Solaris")).value == "Solaris"
            raise RuntimeError("as it was raised")

    for _ in range(3):
        with pytest.raises(RuntimeError, match="as it was raised"):
            await fail_while_serving()
    async with served(cinema()) as url:
        with anyio.fail_after(WAIT):
            assert (await User(url).call("book", film="Stalker")).value == "Stalker"
