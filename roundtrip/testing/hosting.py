"""`served`, which serves a server object over HTTP on a local port."""

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import anyio
from starlette.types import ASGIApp

from roundtrip.adapters.finding import AnyServer, is_fastmcp


@asynccontextmanager
async def served(server: AnyServer, **options: Any) -> AsyncGenerator[str]:
    """Serve streamable HTTP on a free loopback port until the `async with` block ends, and yield the URL.

    Args:
        server: The server.
        **options: Arguments for `streamable_http_app`, or for FastMCP's `http_app`.
    """
    app = server.http_app("/mcp", **options) if is_fastmcp(server) else server.streamable_http_app(**options)
    # Listen before serving, so that a client can connect immediately.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # `roundtrip serve` also sets TCP_NODELAY. Without it, each response waits about 40 ms for an acknowledgment.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with serving(app, listening):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"


@asynccontextmanager
async def serving(
    app: ASGIApp, listening: socket.socket, *, lifespan: Literal["auto", "on", "off"] = "auto"
) -> AsyncGenerator[None]:
    """Serve an application on a socket until the `async with` block ends."""
    # lazy: slow to import
    import uvicorn

    class ServerWithoutSignals(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            # Do not let uvicorn install signal handlers, because signals belong to the test runner. If two servers
            # overlapped, the last one to end would restore the other server's handler, and sse_starlette would then
            # treat all later servers as ended.
            yield

    host = ServerWithoutSignals(
        uvicorn.Config(app, log_config=None, ws="none", lifespan=lifespan, timeout_graceful_shutdown=5)
    )

    async def serve() -> None:
        # Without the shield, a cancelled server would leave the event loop listening on a closed socket. The system
        # soon reuses that socket's descriptor.
        with anyio.CancelScope(shield=True):
            await host.serve(sockets=[listening])

    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below, outside the exception group
            failure = error
        finally:
            host.should_exit = True
    if failure is not None:
        raise failure
