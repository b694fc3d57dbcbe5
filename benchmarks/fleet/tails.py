"""Compare the slowest calls with the median: uvicorn in its own process, and 16 connections."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final

from benchmarks.dialogue import play
from benchmarks.fleet.host import THREE_ROUNDS
from benchmarks.fleet.processes import served
from benchmarks.fleet.throughput import connected
from benchmarks.scenarios import Call, Row
from benchmarks.sockets import Connection
from benchmarks.variants import Variant

__all__ = ["Tail"]

_AT_ONCE: Final = 16
_WARM_UP: Final = 10


@dataclass(frozen=True, slots=True)
class Tail:
    """Three-round calls over 16 connections at once. Each connection begins a call when its previous one has ended."""

    rows: tuple[Row, ...]
    """The 99th percentile divided by the median, and the median."""
    calls: int = 1
    most_rounds: int | None = None
    calls_per_connection: int = 30
    """Calls per connection."""

    @asynccontextmanager
    async def prepared(self, variant: Variant) -> AsyncGenerator[Call | None]:
        """Start a process with the variant's server."""
        with served(variant.name) as (server,):
            connections = [await connected(server) for _ in range(_AT_ONCE)]
            await _times(connections, min(_WARM_UP, self.calls_per_connection))

            async def once() -> tuple[float, ...]:
                taken = await _times(connections, self.calls_per_connection)
                middle = median(taken)
                return quantiles(taken, n=100)[-1] / middle, middle

            yield once


async def _times(connections: list[Connection], calls: int) -> list[float]:
    taken: list[float] = []

    async def some(connection: Connection) -> None:
        for _ in range(calls):
            legs = await play(connection, THREE_ROUNDS)
            taken.append(sum(leg.elapsed_ns for leg in legs))

    await asyncio.gather(*map(some, connections))
    return taken
