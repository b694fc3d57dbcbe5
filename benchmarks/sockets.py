"""Run an ASGI application over a real socket: uvicorn on the loopback interface, and one kept connection."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from time import perf_counter_ns
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from benchmarks.asgi import PATH, Response

_HOST: Final = "127.0.0.1"


class Connection:
    """Started server that accepts POST requests, one after another."""

    __slots__ = ("_head", "_read", "_write")

    def __init__(self, read: asyncio.StreamReader, write: asyncio.StreamWriter, *, port: int) -> None:
        self._read = read
        self._write = write
        self._head = f"POST {PATH} HTTP/1.1\r\nhost: {_HOST}:{port}\r\n"

    async def post(self, body: bytes, *, headers: Mapping[str, str]) -> Response:
        """Send one request, and wait for the complete response."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = f"{self._head}{lines}content-length: {len(body)}\r\n\r\n".encode("latin-1") + body
        start = perf_counter_ns()
        self._write.write(request)
        head = (await self._read.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = next(int(line[15:]) for line in head.splitlines() if line.startswith("content-length:"))
        content = await self._read.readexactly(length)
        elapsed = perf_counter_ns() - start
        return Response(status=int(head.split(" ", 2)[1]), body=content, elapsed_ns=elapsed)

    async def close(self) -> None:
        """Close the connection."""
        self._write.close()
        await self._write.wait_closed()


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncGenerator[Connection]:
    """Serve `app` around the block."""
    server = _Server(
        uvicorn.Config(
            app,
            host=_HOST,
            port=0,
            log_config=None,
            ws="none",
            # The connection waits while the other peers have their turns.
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(server.serve())
    await server.ready.wait()
    port = server.servers[0].sockets[0].getsockname()[1]
    read, write = await asyncio.open_connection(_HOST, port)
    connection = Connection(read, write, port=port)
    try:
        yield connection
    finally:
        await connection.close()
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """Server that signals when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()
