"""Sockets and processes for the commands that serve."""

import asyncio
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.serving.process import Ended, listen
from roundtrip.serving.settings import ServeSettings
from roundtrip.serving.supervisor import Supervisor, WorkerFailed

NO_WORKERS: Final = "several workers need os.fork, which this system lacks; use --workers 1"


def require_fork(message: str) -> None:
    """Check that this system can fork.

    Raises:
        CommandFailed: This system cannot fork.
    """
    if not hasattr(os, "fork"):
        raise CommandFailed(message)


def supervise(supervisor: Supervisor) -> int:
    """Run worker processes until a signal arrives. Return the exit code.

    Raises:
        CommandFailed: The workers cannot start.
    """
    with report_errors(WorkerFailed):
        return 0 if asyncio.run(supervisor.run()) else 1


def exit_code_of(ended: Ended) -> int:
    """Return the exit code for a command that served in this process.

    Raises:
        CommandFailed: The server did not start.
    """
    if ended is Ended.NOT_BEGUN:
        raise CommandFailed("the server could not start; see its log above")
    return 0 if ended is Ended.IN_TIME else 1


def listen_at(host: str, port: int) -> socket.socket:
    """Open a socket for a page. Port 0 means a free port.

    Raises:
        CommandFailed: The address cannot be used.
    """
    with _report_address_errors(host, port):
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def listen_for(settings: ServeSettings, *, cure: str = "--port") -> socket.socket:
    """Open a server's socket.

    Args:
        settings: The host and the port.
        cure: The option that chooses another address. The error message suggests it.

    Raises:
        CommandFailed: The address cannot be used.
    """
    with _report_address_errors(settings.host, settings.port, cure):
        return listen(settings)


@contextmanager
def _report_address_errors(host: str, port: int, cure: str = "--port") -> Generator[None]:
    try:
        yield
    except OSError as error:
        # Remove the address, which Python appends to the reason.
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise CommandFailed(f"cannot serve on {at}: {reason}; try another {cure}") from error
