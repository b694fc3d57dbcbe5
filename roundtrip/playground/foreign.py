"""Serve a server of another library as a worker of the playground's supervisor."""

import socket
from collections.abc import Callable
from typing import Any, Final

from roundtrip.ledger.contract import Reach
from roundtrip.server.adapters.finding import is_fastmcp
from roundtrip.server.probe import Identity
from roundtrip.serving.application import ProcessState
from roundtrip.serving.process import Ended, serve_app
from roundtrip.serving.settings import ServeSettings

__all__ = ["ForeignServer"]

_END_SECONDS: Final = 2.0
"""Time for its open streams when the process is replaced: it does not end them itself."""


class ForeignServer:
    """A server of the SDK or of FastMCP, with what a supervisor asks of a server.

    Args:
        server: The server.
    """

    def __init__(self, server: Any) -> None:
        self._server = server

    def identity(self) -> Identity:
        """Return facts that raise no objection."""
        name = str(self._server.name)
        return Identity(name, (), name, "", "", Reach.FLEET, exactly_once=False, own_key=False)

    def is_one_of(self, workers: int, *, group: str) -> None:
        """Do nothing: it serves alone."""

    def serve(self, settings: ServeSettings, listening: socket.socket, on_ready: Callable[[], None]) -> Ended:
        """Serve until a signal arrives."""
        if is_fastmcp(self._server):
            app = self._server.http_app(path=settings.path)
        else:
            app = self._server.streamable_http_app(streamable_http_path=settings.path, host=settings.host)
        settings = settings.model_copy(update={"timeout_graceful_shutdown": _END_SECONDS})
        return serve_app(app, settings, listening, state=ProcessState(), on_ready=on_ready)
