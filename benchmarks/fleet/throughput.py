"""Three-round calls against 1, 2 and 4 processes, each leg to another process."""

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.asgi import Response
from benchmarks.dialogue import play
from benchmarks.fleet.host import THREE_ROUNDS
from benchmarks.fleet.processes import Process, served
from benchmarks.sockets import Connection

__all__ = ["Throughput", "throughput"]

_AT_ONCE: Final = 16
_WARM_UP: Final = 10
"""Unmeasured calls per client before the measurement."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Throughput with a number of processes."""

    processes: int
    calls: int
    seconds: float
    server_cpu: float
    """Seconds, summed over all servers."""
    client_cpu: float


class _RotatingClient:
    """Client that is connected to each process, and sends every request to the next one."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._next = itertools.cycle(connections)

    async def post(self, body: bytes, *, headers: Mapping[str, str]) -> Response:
        return await next(self._next).post(body, headers=headers)


def throughput(processes: int, *, calls: int) -> Throughput:
    """Make calls against new processes, and measure the processor time on both sides."""
    with served("roundtrip", processes) as servers:
        return asyncio.run(_measured(servers, calls))


async def _measured(servers: Sequence[Process], calls: int) -> Throughput:
    clients = [_RotatingClient([await connected(server) for server in servers]) for _ in range(_AT_ONCE)]
    await _play(clients, _AT_ONCE * _WARM_UP)
    server_cpu, client_cpu = sum(server.cpu for server in servers), time.process_time()
    began = time.perf_counter()
    await _play(clients, calls)
    seconds = time.perf_counter() - began
    client_cpu = time.process_time() - client_cpu
    return Throughput(len(servers), calls, seconds, sum(server.cpu for server in servers) - server_cpu, client_cpu)


async def connected(server: Process) -> Connection:
    """Connect to a process, which may still be starting."""
    read, write = await asyncio.open_connection("127.0.0.1", server.port)
    return Connection(read, write, port=server.port)


async def _play(clients: Sequence[_RotatingClient], calls: int) -> None:
    numbers = iter(range(calls))

    async def some(client: _RotatingClient) -> None:
        for _ in numbers:
            await play(client, THREE_ROUNDS)

    await asyncio.gather(*map(some, clients))
