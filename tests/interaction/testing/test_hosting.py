"""Servers on ports of this machine."""

import signal

import pytest

from roundtrip import Server
from roundtrip.testing import User, served

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
