"""Server process for the benchmark: `python -m benchmarks.fleet.host PEER|sessions --fd N`."""

import argparse
import logging
import socket
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve, Sample
from starlette.types import ASGIApp

from benchmarks.asgi import PATH
from benchmarks.fleet.processes import Stack
from benchmarks.variants.resolvers import Markers, register
from benchmarks.workloads import Workload, confirm, plain, words

__all__ = ["THREE_ROUNDS", "WORK"]

THREE_ROUNDS: Final[Workload] = words(1, 1, 1)
"""The measured call: three questions, each of which depends on the previous answer."""

WORK: Final = MappingProxyType({"three-rounds": THREE_ROUNDS, "plain": plain(), "elicit": confirm()})

_SESSIONS: Final = "sessions"


def _app(name: str, workload: Workload) -> ASGIApp:
    """Return one peer's server, without importing the others."""
    return _sessions() if name == _SESSIONS else import_module(f"benchmarks.variants.{name}_server").build(workload)


def _sessions() -> ASGIApp:
    """Return the SDK's server for clients on 2025-11-25, with a session per client that holds its question open."""
    server: MCPServer[Any] = MCPServer("bench")
    register(server, confirm(), markers=Markers(resolve=Resolve, elicit=Elicit, sample=Sample))
    return server.streamable_http_app(streamable_http_path=PATH)


def _serve(workload: Workload, listening: socket.socket) -> None:
    # Lazy: only roundtrip needs these.
    from benchmarks.variants.roundtrip_server import make
    from roundtrip.serving.process import serve
    from roundtrip.serving.settings import ServeSettings

    serve(make(workload), ServeSettings(path=PATH, port=listening.getsockname()[1]), listening)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("app", help=f"the name of a peer, or {_SESSIONS}")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--work", choices=WORK, default="three-rounds", help="the call that a peer serves")
    parser.add_argument("--stack", choices=list(Stack), default=Stack.PLAIN, help="what it runs on")
    options = parser.parse_args()
    # Logging is not measured.
    logging.disable(logging.CRITICAL)
    workload, stack, listening = WORK[options.work], Stack(options.stack), socket.socket(fileno=options.fd)
    if stack is Stack.SERVE and options.app == "roundtrip":
        _serve(workload, listening)
        return
    app = _app(options.app, workload)
    http, loop = ("httptools", "uvloop") if stack is Stack.FAST else ("h11", "asyncio")
    config = uvicorn.Config(
        app, http=http, loop=loop, log_config=None, access_log=False, ws="none", timeout_keep_alive=3600
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
