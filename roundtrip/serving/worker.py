"""Worker process: it sends its supervisor its identity, waits for the start command, and serves."""

import hashlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from roundtrip.ledger.contract import Reach
from roundtrip.safe_text import printable
from roundtrip.server.probe import Identity
from roundtrip.server.server import Server
from roundtrip.serving.process import Ended, serve, set_up_logging
from roundtrip.serving.settings import ServeSettings

__all__ = ["FAILED", "IDENTITY", "READY", "SERVE", "identity_from", "work"]

IDENTITY: Final = "identity"
READY: Final = "ready"
FAILED: Final = "failed"
SERVE: Final = b"serve\n"
_GROUP_CHARS: Final = 12
_LONGEST: Final = 2000
"""Characters of a failure that are reported."""


def work(
    load: Callable[[], Server[Any]], settings: ServeSettings, *, listening: socket.socket, channel: socket.socket
) -> int:
    """Load the server, report to the supervisor, serve on its command, and return the exit code."""
    # The supervisor handles interrupts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A SIGHUP to all processes of a service is meant for the supervisor.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        server = load()
        set_up_logging(settings)
        identity = server.identity()
        supervisor = f"{socket.gethostname()} {os.getppid()}"
        server.is_one_of(settings.workers, group=hashlib.sha256(supervisor.encode()).hexdigest()[:_GROUP_CHARS])
    except Exception as error:  # noqa: BLE001 - the supervisor reports any failure of the author's module
        _tell(channel, FAILED, printable(str(error)[:_LONGEST] or type(error).__name__))
        return 1
    _tell(channel, IDENTITY, {**identity._asdict(), "reach": identity.reach.value})
    if channel.recv(len(SERVE), socket.MSG_WAITALL) != SERVE:
        return 0
    threading.Thread(target=_end_with_supervisor, args=(channel,), daemon=True).start()
    ended = serve(server, settings, listening, on_ready=lambda: _tell(channel, READY, None))
    return 0 if ended is Ended.IN_TIME else 1


def identity_from(sent: Any) -> Identity:
    """Read the identity that a worker sent."""
    read: dict[str, Any] = {**sent, "keys": tuple(sent["keys"]), "reach": Reach(sent["reach"])}
    return Identity(**read)


def _tell(channel: socket.socket, kind: str, value: Any) -> None:
    channel.sendall(json.dumps({kind: value}).encode() + b"\n")


def _end_with_supervisor(channel: socket.socket) -> None:
    # The supervisor sends nothing more: this returns when it has ended.
    channel.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)
