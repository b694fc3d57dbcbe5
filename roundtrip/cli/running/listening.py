"""Open the sockets on which commands serve."""

import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from roundtrip.cli.command import CommandFailed
from roundtrip.serving.process import listen

if TYPE_CHECKING:
    from roundtrip.serving.settings import ServeSettings

__all__ = ["listen_at", "listen_for", "require_port"]

_MAX_PORT: Final = 65535


def require_port(option: str, port: int) -> None:
    """Reject a number that is no port; 0 is a free one.

    Raises:
        CommandFailed: It is none.
    """
    if not 0 <= port <= _MAX_PORT:
        raise CommandFailed(f"{option} must be from 1 to {_MAX_PORT}, or 0 for a free one, got {port}")


def listen_at(host: str, port: int) -> socket.socket:
    """Open a socket for a page; port 0 is a free one.

    Raises:
        CommandFailed: The address cannot be used.
    """
    with _reporting(host, port):
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def listen_for(settings: "ServeSettings", *, cure: str = "--port") -> socket.socket:
    """Open the socket of a server; `cure` is the option that chooses another address.

    Raises:
        CommandFailed: The address cannot be used.
    """
    with _reporting(settings.host, settings.port, cure):
        return listen(settings)


@contextmanager
def _reporting(host: str, port: int, cure: str = "--port") -> Generator[None]:
    try:
        yield
    except OSError as error:
        # Python adds the address to the reason.
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise CommandFailed(f"cannot serve on {at}: {reason}; try another {cure}") from error
