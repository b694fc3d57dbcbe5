"""Servers in other processes, on a local port or on stdio, and applications on a test's event loop.

A socket listens before its server starts, so that a client can connect at once.
The processes run `main`, with the arguments `MODULE:FACTORY [--fd N] [--skew SECONDS]`.
"""

import argparse
import asyncio
import importlib
import random
import signal
import socket
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import uvicorn
from mcp.client.stdio import StdioServerParameters
from mcp.server import MCPServer
from starlette.types import ASGIApp

from roundtrip.testing.hosting import serving
from tests.kit.forks import ForkedProcess, command_of, start
from tests.kit.waiting import WAIT

__all__ = [
    "ROOT",
    "WAIT",
    "Factory",
    "HttpProcess",
    "PatientServer",
    "free_port",
    "hosted",
    "listening",
    "listening_again",
    "main",
    "name_of",
    "own_loop",
    "stdio",
]

ROOT: Final = Path(__file__).resolve().parents[2]

_SERVER_PORTS: Final = range(20_000, 30_000)

Factory = Callable[[], MCPServer[Any]]


def listening(port: int = 0) -> socket.socket:
    """Listen on a local port, by default a free one, and send without delay.

    asyncio disables the delay only for its own sockets. Otherwise a response's second part would wait some 40 ms until
    the first part is acknowledged.
    """
    door = socket.create_server(("127.0.0.1", port))
    door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return door


def listening_again(port: int) -> socket.socket:
    """Return a socket on a port that a fleet holds; until an instance listens, connections are refused."""
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    door.bind(("127.0.0.1", port))
    door.listen(512)
    return door


def is_listening(port: int) -> bool:
    """Return True if a local port accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """Return a port for a server that opens it itself.

    It is below the ports that the system gives to clients, so no other test takes it before the server starts.
    """
    for port in random.sample(_SERVER_PORTS, len(_SERVER_PORTS)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("no port is free")


def name_of(factory: Factory) -> str:
    """Return the name under which another process imports a factory."""
    return f"{factory.__module__}:{factory.__qualname__}"


def stdio(factory: Factory) -> StdioServerParameters:
    """Return the command that serves a factory's server over stdio."""
    command, *arguments = command_of(main, name_of(factory))
    return StdioServerParameters(command=command, args=arguments, cwd=ROOT)


@asynccontextmanager
async def hosted(
    app: ASGIApp, *, port: int = 0, lifespan: Literal["auto", "on", "off"] = "auto"
) -> AsyncGenerator[str]:
    """Serve an application on this event loop, and yield its address without a path."""
    with listening(port) as door:
        async with serving(app, door, lifespan=lifespan):
            yield f"http://127.0.0.1:{door.getsockname()[1]}"


@contextmanager
def own_loop() -> Generator[None]:
    """Give this thread an event loop, which Mangum takes and keeps, and close it at the end."""
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        try:
            yield
        finally:
            asyncio.set_event_loop(None)


class PatientServer(uvicorn.Server):
    """uvicorn server that, at its end, also closes accepted connections for which it has no protocol object yet.

    uvicorn overlooks these, and serves requests on them until it cancels the last one.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await asyncio.sleep(0.1)
        await super().shutdown(sockets)


class HttpProcess:
    """Server in its own process. It can be killed, and restarted on the same port with another build."""

    def __init__(self) -> None:
        self._listening = listening()
        self._process: ForkedProcess | None = None
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/mcp"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.pid

    def start(self, factory: Factory, *, skew: float = 0.0) -> None:
        arguments = [name_of(factory), "--fd", "0", "--skew", str(skew)]
        self._process = start(main, arguments, cwd=ROOT, stdin=self._listening.fileno())

    def stop(self) -> None:
        """End the process like a deployment: it finishes its work first."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(WAIT)
            self._process = None

    def kill(self) -> None:
        """End the process at once, like a power failure."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT)
            self._process = None

    def __enter__(self) -> "HttpProcess":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        self._listening.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("factory")
    parser.add_argument("--fd", type=int)
    parser.add_argument("--skew", type=float, default=0.0)
    options = parser.parse_args(arguments)
    if options.skew:
        true_time = time.time
        time.time = lambda: true_time() + options.skew
    module, _, name = options.factory.partition(":")
    server: MCPServer[Any] = getattr(importlib.import_module(module), name)()
    if options.fd is None:
        server.run()
    else:
        app = server.streamable_http_app(stateless_http=True)
        config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=5)
        PatientServer(config).run(sockets=[socket.socket(fileno=options.fd)])
