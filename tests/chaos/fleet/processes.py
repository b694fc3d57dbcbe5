"""The processes of a fleet: each has a port for good, and is killed and started again."""

import os
import socket
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from tests.chaos.fleet import instance as program
from tests.kit.forks import FORKS
from tests.kit.hosts import WAIT, is_listening
from tests.kit.nginx_server import nginx
from tests.kit.redis_server import redis_server

__all__ = ["RETRIES", "Fleet", "Instance", "fleet", "until"]

# nginx sends a request whose instance died to another one, although that may run its body a second time.
RETRIES: Final = (
    "proxy_next_upstream error timeout non_idempotent http_502; add_header X-Upstreams $upstream_addr always;"
)

_STARTS: Final = 60.0
"""Seconds in which a process listens, on a machine that has much else to do."""


class Instance:
    """A process on a port of its own; while it is down, its port refuses connections.

    Args:
        *options: Its command line, behind `--port`.
        target: The program; by default a till.
    """

    def __init__(self, *options: str, target: Callable[[Sequence[str]], None] = program.main) -> None:
        self._options = options
        self._target = target
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]
        self._process: ForkServerProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def pid(self) -> int | None:
        """Return the id of its process, or None while it is down."""
        return self._process.pid if self._process is not None else None

    def start(self, *options: str) -> None:
        """Start it, with more options than its usual ones."""
        arguments = ["--port", str(self.port), *self._options, *options]
        self._process = FORKS.Process(target=self._target, args=(arguments,), daemon=True)
        self._process.start()

    def kill(self) -> int:
        """Kill it, and return the id of its process."""
        process, self._process = self._process, None
        if process is None:
            raise RuntimeError("it is down")
        pid = process.pid
        process.kill()
        process.join(WAIT)
        process.close()
        return pid or 0

    def signal(self, number: int) -> None:
        """Send it a signal."""
        if self.pid is not None:
            os.kill(self.pid, number)

    async def stop(self) -> None:
        """Stop it after the requests that it has begun."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            await until(lambda: not process.is_alive(), "the instance goes")
            process.close()

    async def ready(self) -> None:
        """Wait until it accepts connections."""
        await until(lambda: is_listening(self.port), f"the instance on {self.address} listens", seconds=_STARTS)

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        self._held.close()


@dataclass(frozen=True, slots=True)
class Fleet:
    """Instances behind nginx, with a Redis."""

    url: str
    """nginx's."""
    instances: Sequence[Instance]
    redis: str

    async def ready(self) -> None:
        for instance in self.instances:
            await instance.ready()


@contextmanager
def fleet(size: int, *options: str, skews: Sequence[float] = (0.0,)) -> Generator[Fleet]:
    """Run a fleet whose instances have these options.

    Args:
        size: How many there are.
        options: What all of them are started with.
        skews: By how much their clocks are wrong, in turn.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        redis = stack.enter_context(redis_server()).url
        common = ["--redis", redis, "--file", str(folder / "ledger.db"), *options]
        instances: list[Instance] = []
        for at in range(size):
            instance = Instance(*common, "--skew", str(skews[at % len(skews)]))
            stack.callback(instance.close)
            instances.append(instance)
            instance.start()
        url = stack.enter_context(nginx([instance.address for instance in instances], extra=RETRIES))
        yield Fleet(url, instances, redis)


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str, *, seconds: float = WAIT) -> None:
    """Wait for a condition.

    Raises:
        AssertionError: It has not come true in time.
    """
    ends = time.monotonic() + seconds
    while True:
        true = condition()
        if true if isinstance(true, bool) else await true:
            return
        if time.monotonic() > ends:
            raise AssertionError(f"waited {seconds:g} s in vain: {what}")
        await anyio.sleep(0.01)
