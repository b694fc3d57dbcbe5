"""The processes of a fleet: each has a port for good, and is killed and started again."""

import socket
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

import anyio

from tests.chaos.fleet import instance as program
from tests.kit.forks import ForkedProcess, start
from tests.kit.hosts import ROOT, WAIT, is_listening
from tests.kit.nginx_server import nginx
from tests.kit.redis_server import redis_server

__all__ = ["RETRIES", "Fleet", "Instance", "Member", "fleet", "suspended", "until"]

# nginx sends a request whose instance died to another one, although that may run its body a second time.
RETRIES: Final = (
    "proxy_next_upstream error timeout non_idempotent http_502; add_header X-Upstreams $upstream_addr always;"
)


_AIMS: Final = 20.0
"""Seconds for which a process is looked for that is where it should die."""


class Member:
    """A process that is killed, and started again."""

    def __init__(self) -> None:
        self._process: ForkedProcess | None = None

    @property
    def pid(self) -> int | None:
        """Return the id of its process, or None while it is down."""
        return self._process.pid if self._process is not None else None

    def kill(self) -> int:
        """Kill it, and return the id of its process."""
        process = self._taken()
        process.kill()
        process.wait(WAIT)
        return process.pid

    def signal(self, number: Signals) -> None:
        """Send it a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    async def stop(self) -> int | None:
        """Stop it as a supervisor does, after what it has begun, and return its exit code; None if it did not end."""
        process = self._taken()
        process.send_signal(Signals.SIGTERM)
        try:
            await until(lambda: process.poll() is not None, "the process ends")
        except AssertionError:
            process.kill()
            return None
        return process.poll()

    def close(self) -> None:
        if self._process is not None:
            self.kill()

    def _taken(self) -> ForkedProcess:
        process, self._process = self._process, None
        if process is None:
            raise RuntimeError("it is down")
        return process


class Instance(Member):
    """A process on a port of its own; while it is down, its port refuses connections.

    Args:
        *options: Its command line, behind `--port`.
        target: The program; by default a till.
    """

    def __init__(self, *options: str, target: Callable[[Sequence[str]], None] = program.main) -> None:
        super().__init__()
        self._options = options
        self._target = target
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self, *options: str) -> None:
        """Start it, with more options than its usual ones."""
        self._process = start(self._target, ["--port", str(self.port), *self._options, *options], cwd=ROOT)

    async def ready(self) -> None:
        """Wait until it accepts connections."""
        await until(lambda: is_listening(self.port), f"the instance on {self.address} listens")

    def close(self) -> None:
        super().close()
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
def fleet(size: int, *options: str) -> Generator[Fleet]:
    """Run a fleet of a size, whose instances have these options."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        redis = stack.enter_context(redis_server()).url
        common = ["--redis", redis, "--file", str(folder / "ledger.db"), *options]
        instances: list[Instance] = []
        for _ in range(size):
            instance = Instance(*common)
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


M = TypeVar("M", bound=Member)


async def suspended(
    members: Callable[[], Sequence[M]], is_there: Callable[[M], Awaitable[bool]], *, over: Callable[[], bool]
) -> M | None:
    """Suspend a process that is where it should die, and return it; None if none was found in some time."""
    ends = time.monotonic() + _AIMS
    while time.monotonic() < ends and not over():
        for member in members():
            if member.pid is None or not await is_there(member):
                continue
            # On a busy machine it may go on before the kill, so look again when it cannot.
            member.signal(Signals.SIGSTOP)
            if await is_there(member):
                return member
            member.signal(Signals.SIGCONT)
        await anyio.sleep(0.002)
    return None
