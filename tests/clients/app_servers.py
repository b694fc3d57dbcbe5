"""Servers with the five tools of `tests/interaction/adapters/apps/hosting.py`, each in a process for foreign hosts."""

import argparse
import os
import socket
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import uvicorn
from fastmcp import FastMCP
from starlette.middleware.cors import CORSMiddleware

from roundtrip.ledger import SqliteLedger
from tests.interaction.adapters.apps.hosting import made
from tests.kit.forks import start
from tests.kit.hosts import ROOT, WAIT, PatientServer, listening

__all__ = ["USER", "app_server"]

USER: Final = "ann"
"""The user of the hosts. They send the name in the header `x-user`."""


@contextmanager
def app_server(
    kind: str = "server", *, app: Literal[True, "always"] = True, store: Path | None = None
) -> Generator[str]:
    """Serve the tools in processes on one port, and yield their address without a path.

    Args:
        kind: The class of the server.
        app: Whether to list the app to every client, and to keep no sessions.
        store: A shared store for two processes, which keep no sessions. None for one process.
    """
    words = [kind, *(["--always"] if app == "always" else []), *(["--store", str(store)] if store is not None else [])]
    with ExitStack() as stack, listening() as door, Path(os.devnull).open("wb") as log:
        for _ in range(1 if store is None else 2):
            process = start(main, words, cwd=ROOT, stdin=door.fileno(), stderr=log.fileno())
            stack.callback(process.wait, WAIT)
            stack.callback(process.kill)
        yield f"http://127.0.0.1:{door.getsockname()[1]}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("--always", action="store_true")
    parser.add_argument("--store")
    given = parser.parse_args(arguments)
    options: dict[str, Any] = {} if given.store is None else {"ledger": SqliteLedger(given.store)}
    server = made(given.kind, pages={"app": "always" if given.always else True}, **options)
    if isinstance(server, FastMCP):
        app: Any = server.http_app(stateless_http=given.always)
    else:
        app = server.streamable_http_app(stateless_http=given.always)
    # The client of a host that is a page is of another origin, and reads the session from a header.
    shared = CORSMiddleware(app, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"], expose_headers=["*"])
    config = uvicorn.Config(shared, log_config=None, ws="none", timeout_graceful_shutdown=5)
    PatientServer(config).run(sockets=[socket.socket(fileno=0)])
