"""`served`: serve a server of this process on a port of this machine."""

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import anyio
from starlette.types import ASGIApp

from roundtrip.adapters.finding import AnyServer, is_fastmcp


@asynccontextmanager
async def served(server: AnyServer, **options: Any) -> AsyncGenerator[str]:
    """Serve streamable HTTP on a free port of the loopback interface inside the block; yields the URL.

    Args:
        server: The server.
        **options: Options of its `streamable_http_app`, or of FastMCP's `http_app`.
    """
    app = server.http_app("/mcp", **options) if is_fastmcp(server) else server.streamable_http_app(**options)
    # Listen before serving, so that a client may connect at once.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # As `roundtrip serve` does: otherwise each response waits some 40 ms for an acknowledgment.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with serving(app, listening):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"


@asynccontextmanager
async def serving(
    app: ASGIApp, listening: socket.socket, *, lifespan: Literal["auto", "on", "off"] = "auto"
) -> AsyncGenerator[None]:
    """Serve an application from a socket inside the block."""
    # Imported here, because the import is slow.
    import uvicorn

    class ServerWithoutSignals(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            # The signals are the test runner's. Of two servers, the last to end would also restore the handler of
            # the other, which has ended; sse_starlette takes that for the end of all later servers.
            yield

    host = ServerWithoutSignals(
        uvicorn.Config(app, log_config=None, ws="none", lifespan=lifespan, timeout_graceful_shutdown=5)
    )

    async def serve() -> None:
        # Cancelled, it would leave the loop listening on a socket that is closed, and soon on another of its number.
        with anyio.CancelScope(shield=True):
            await host.serve(sockets=[listening])

    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below, as it is and not in a group
            failure = error
        finally:
            host.should_exit = True
    if failure is not None:
        raise failure
