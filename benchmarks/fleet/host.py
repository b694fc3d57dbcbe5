"""A server process of the benchmark: `python -m benchmarks.fleet.host roundtrip|sessions --fd N`."""

import argparse
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from starlette.types import ASGIApp

from benchmarks.asgi import PATH
from benchmarks.variants import roundtrip_server
from benchmarks.variants.resolvers import Markers, register
from benchmarks.workloads import Workload, confirm, words

__all__ = ["THREE_ROUNDS"]

THREE_ROUNDS: Final[Workload] = words(1, 1, 1)
"""The call that is measured: three questions, each of which depends on the answer before it."""


def _roundtrip() -> ASGIApp:
    return roundtrip_server.build(THREE_ROUNDS)


def _sessions() -> ASGIApp:
    """The SDK's server for clients of 2025-11-25: a session for each, which holds its question open."""
    server: MCPServer[Any] = MCPServer("bench")
    register(server, confirm(), markers=Markers(resolve=Resolve, elicit=Elicit))
    return server.streamable_http_app(streamable_http_path=PATH)


_APPS: Final[dict[str, Callable[[], ASGIApp]]] = {"roundtrip": _roundtrip, "sessions": _sessions}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("app", choices=sorted(_APPS))
    parser.add_argument("--fd", type=int, required=True)
    options = parser.parse_args()
    app = _APPS[options.app]()
    # The SDK sets up its logging when a server is made; what it writes is not what is measured.
    logging.disable(logging.CRITICAL)
    config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", timeout_keep_alive=3600)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=options.fd)])


if __name__ == "__main__":
    main()
