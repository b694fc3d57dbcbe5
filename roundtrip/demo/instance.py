"""Run one instance of the demo's shop: `python -m roundtrip.demo.instance --name ash`, with the key in the environment.

It serves stateless streamable HTTP on the loopback interface. It reports on standard output: its port on the first
line, and then each change of a call's state as a JSON object on a line of its own.
It ends when its standard input ends, so that it never outlives the demo.
"""

import argparse
import os
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Final

import uvicorn
from pydantic import BaseModel, ConfigDict

from roundtrip.demo.shop import make_shop
from roundtrip.machine.call import Transition
from roundtrip.machine.table import CALL_MACHINE, Event, State

HOST: Final = "127.0.0.1"
KEY_VARIABLE: Final = "ROUNDTRIP_DEMO_KEY"


class Change(BaseModel):
    """Report that a call changed its state."""

    model_config = ConfigDict(frozen=True)

    pid: int
    source: State
    event: Event
    target: State
    keys: tuple[str, ...] = ()
    """The questions of a round."""
    reasons: dict[str, str] = {}
    """The reason for each question."""
    remark: str | None = None
    """The error or reason that ended the call."""

    @property
    def ends_leg(self) -> bool:
        """Return True for the last change of a leg."""
        return self.target is State.AWAITING_INPUT or self.target in CALL_MACHINE.final


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process or its standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m roundtrip.demo.instance", description="One instance of the demo.")
    parser.add_argument("--name", required=True, help="the name of the instance")
    parsed = parser.parse_args(arguments)
    key = os.environ.get(KEY_VARIABLE)
    if key is None:
        parser.error(f"the environment variable {KEY_VARIABLE} must hold the key that all instances share")
    pid = os.getpid()

    def trace(transition: Transition) -> None:
        detail = transition.detail
        change = Change(
            pid=pid,
            source=transition.source,
            event=transition.event,
            target=transition.target,
            keys=detail.get("keys", ()),
            reasons=detail.get("reasons", {}),
            remark=detail.get("reason") or detail.get("error"),
        )
        print(change.model_dump_json(exclude_none=True), flush=True)

    shop = make_shop(parsed.name, key=key, trace=trace)
    app = shop.streamable_http_app(stateless_http=True, host=HOST)
    with socket.create_server((HOST, 0)) as listening:
        # As `roundtrip serve` does: otherwise each response waits some 40 ms for an acknowledgment.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Connections queue from here on, before the server accepts any.
        print(listening.getsockname()[1], flush=True)
        threading.Thread(target=_end_with_input, daemon=True).start()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


def _end_with_input() -> None:
    # Not through `sys.stdin`: its lock, held by a daemon thread, breaks the interpreter's shutdown.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
