"""Servers on ports of this machine."""

import signal
import socket
from typing import Any

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


async def test_no_part_of_a_response_waits_for_word_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    listening: list[socket.socket] = []
    create = socket.create_server

    def create_server(*args: Any, **options: Any) -> socket.socket:
        listening.append(create(*args, **options))
        return listening[-1]

    monkeypatch.setattr(socket, "create_server", create_server)
    async with served(cinema()):
        # Accepted sockets inherit it.
        assert listening[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
