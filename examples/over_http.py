"""Serve an example over HTTP, and call it as a client.

The other examples import this module, so that they show only their own lesson.
"""

import argparse
import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

import httpx2
import uvicorn
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from roundtrip import Server


@asynccontextmanager
async def served(server: Server, port: int = 0) -> AsyncGenerator[str]:
    """Serve on a local port, and yield the address."""
    listening = socket.create_server(("127.0.0.1", port))
    web = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning"))
    task = asyncio.create_task(web.serve([listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        web.should_exit = True
        await task


@asynccontextmanager
async def client_with_token(url: str, token: str) -> AsyncGenerator[Client]:
    """Connect as the user with this bearer token."""
    async with (
        # A server with pages answers within `Pages(wait=...)`, and the default timeout in httpx2 is five seconds.
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as web,
        Client(streamable_http_client(url, http_client=web)) as client,
    ):
        yield client


async def serve_or_look(
    server: Server, description: str | None, users: Collection[str], look: Callable[[str, str], Awaitable[None]]
) -> None:
    """Serve until interrupted, or with `--user NAME` call `look(NAME, url)` and stop."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--user", choices=sorted(users), help="look at it as this user, and stop")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    async with served(server, arguments.port) as url:
        if arguments.user is not None:
            await look(arguments.user, url)
            return
        print("serving at", url)
        await asyncio.Event().wait()
