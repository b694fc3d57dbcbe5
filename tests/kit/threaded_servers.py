"""Serve an application in a thread, for clients in other processes or without an event loop."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from tests.kit.hosts import WAIT, listening

__all__ = ["serve_in_thread"]


@contextmanager
def serve_in_thread(app: ASGIApp, *, port: int = 0, lifespan: Literal["auto", "on", "off"] = "auto") -> Generator[str]:
    """Serve an application inside a `with` block, and yield its `/mcp` address."""
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, ws="none", lifespan=lifespan, timeout_graceful_shutdown=1)
    )
    with listening(port) as door:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            thread.join(WAIT)
