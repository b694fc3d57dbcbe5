"""One instance of the demo shop: `python -m roundtrip.demo.instance --name ash`. The environment contains the key.

The instance serves stateless streamable HTTP on the loopback interface. The first line of its standard output is its
port. Each further line is a JSON object that reports a state change. The instance exits when its standard input closes,
so that it never outlives the demo.
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
    """A change in a call's state, reported by an instance."""

    model_config = ConfigDict(frozen=True)

    pid: int
    source: State
    event: Event
    target: State
    keys: tuple[str, ...] = ()
    """The names of the round's questions."""
    reasons: dict[str, str] = {}
    """The reason why each question was asked, by question name."""
    remark: str | None = None
    """The error or reason that ended the call."""

    @property
    def ends_leg(self) -> bool:
        """Return True if this is the last state change on a leg."""
        return self.target is State.AWAITING_INPUT or self.target in CALL_MACHINE.final


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is killed or its standard input closes."""
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
    with socket.create_server((HOST, 0)) as server_socket:
        # Without TCP_NODELAY, each response would wait about 40 ms for an acknowledgment. `roundtrip serve` also sets
        # this option.
        server_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The port can be printed before the server starts, because the socket queues connections until the server
        # accepts them.
        print(server_socket.getsockname()[1], flush=True)
        threading.Thread(target=_end_with_input, daemon=True).start()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[server_socket])


def _end_with_input() -> None:
    # Do not use `sys.stdin` here. If a daemon thread held the lock of `sys.stdin`, the interpreter could not shut down.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
