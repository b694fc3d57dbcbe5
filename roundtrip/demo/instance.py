"""One instance of the demo's shop: `python -m roundtrip.demo.instance --name ash`, with the key in the environment.

It serves stateless streamable HTTP on the loopback interface, reports to its standard output, and ends when its
standard input does: an instance must not outlive the demo, however that ended.
"""

import argparse
import os
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Final

import uvicorn
from pydantic import BaseModel

from roundtrip.demo.reports import Ready, change_of
from roundtrip.demo.shop import make_shop
from roundtrip.machine.call import Transition

__all__ = ["HOST", "KEY_VARIABLE", "main"]

HOST: Final = "127.0.0.1"
KEY_VARIABLE: Final = "ROUNDTRIP_DEMO_KEY"


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is ended or its standard input is."""
    parser = argparse.ArgumentParser(prog="python -m roundtrip.demo.instance", description="One instance of the demo.")
    parser.add_argument("--name", required=True, help="what the instance calls itself")
    parser.add_argument("--port", type=int, default=0, help="by default a free one, which it reports")
    parsed = parser.parse_args(arguments)
    key = os.environ.get(KEY_VARIABLE)
    if key is None:
        parser.error(f"the environment variable {KEY_VARIABLE} must hold the key that all instances share")
    pid = os.getpid()

    def trace(step: Transition) -> None:
        _report(change_of(step, pid=pid))

    shop = make_shop(parsed.name, key=key, trace=trace)
    app = shop.streamable_http_app(stateless_http=True, host=HOST)
    with socket.create_server((HOST, parsed.port)) as listening:
        # Connections queue from here on, so it is ready although nothing is accepted yet.
        _report(Ready(pid=pid, port=listening.getsockname()[1]))
        threading.Thread(target=_end_with_input, daemon=True).start()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


def _report(report: BaseModel) -> None:
    print(report.model_dump_json(exclude_none=True), flush=True)


def _end_with_input() -> None:
    # Not through `sys.stdin`: its lock, held by a daemon thread, would break a shutdown from elsewhere.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
