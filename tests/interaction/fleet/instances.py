"""Instances of the example's shop, each in a process on a port that stays its own while it is down."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from roundtrip.cli import main
from tests.kit.forks import Started, start
from tests.kit.hosts import ROOT, WAIT, is_listening

__all__ = ["FLEET", "Instance"]

_STARTS: Final = 3 * WAIT
"""Seconds that importing everything may take, for several processes at once on a busy machine."""

FLEET: Final = ROOT / "examples" / "fleet"


class Instance:
    """Process on a port of its own. While it is down, its port refuses connections and stays reserved."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = {**os.environ, **environment}
        self.folder = folder
        self._log = folder / "log"
        self._held = socket.socket()
        # A port that is bound in this way can be listened at by another process, until which it refuses.
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._process: Started | None = None

    def start(self) -> None:
        words = ["serve", f"{FLEET / 'shop.py'}:server", "--sessions", "--port", str(self.port)]
        with self._log.open("ab") as log:
            stream = log.fileno()
            self._process = start(main, words, cwd=ROOT, env=self._environment, stdout=stream, stderr=stream)

    def wait(self) -> None:
        """Wait until it accepts connections."""
        ends = time.monotonic() + _STARTS
        while not is_listening(self.port):
            if time.monotonic() > ends or self._process is None or self._process.poll() is not None:
                raise AssertionError(self._log.read_text())
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill it, as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT)
            self._process = None

    def __enter__(self) -> "Instance":
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        self._held.close()
