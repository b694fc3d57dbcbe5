"""Runs the peers of one scenario side by side, so that whatever disturbs the machine disturbs them all."""

import asyncio
import gc
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median

from benchmarks.scenarios import Call, Row, Scenario
from benchmarks.variants import Variant
from benchmarks.wire import WrongReply


class PeerFailed(RuntimeError):
    """One peer did not do a scenario's work; says which and how."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Amount of measuring."""

    rounds: int
    batch_scale: float
    warm_up: int

    def batch(self, calls: int) -> int:
        """The number of calls in a batch that is normally `calls` long."""
        return max(1, round(calls * self.batch_scale))


@dataclass(frozen=True, slots=True)
class Figure:
    """The values of one peer in one row; each is the mean of a batch."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The value to compare."""
        return median(self.samples)

    @property
    def least(self) -> float:
        """The value that was disturbed least."""
        return min(self.samples)


@dataclass(frozen=True, slots=True)
class Line:
    """One row with the figures of the peers that can do it, by name. Samples of one place were taken in one round."""

    row: Row
    figures: dict[str, Figure]


async def measure(
    scenario: Scenario, variants: Sequence[Variant], *, effort: Effort, rng: random.Random
) -> tuple[Line, ...]:
    """Put the variants through the scenario.

    Raises:
        PeerFailed: A variant answered wrongly.
    """
    samples = await interleaved({variant.name: (scenario, variant) for variant in variants}, effort=effort, rng=rng)
    return tuple(
        Line(row, {name: Figure(tuple(values[index] for values in rounds)) for name, rounds in samples.items()})
        for index, row in enumerate(scenario.rows)
    )


async def interleaved(
    subjects: Mapping[str, tuple[Scenario, Variant]], *, effort: Effort, rng: random.Random
) -> dict[str, list[tuple[float, ...]]]:
    """Put each variant through its scenario, round by round, in an order shuffled anew in every round.

    Raises:
        PeerFailed: A variant answered wrongly.
    """
    samples: dict[str, list[tuple[float, ...]]] = {}
    most = [scenario.most_rounds for scenario, _ in subjects.values() if scenario.most_rounds is not None]
    async with AsyncExitStack() as stack:
        ready: dict[str, tuple[Call, int]] = {}
        for name, (scenario, variant) in subjects.items():
            call = await stack.enter_async_context(scenario.prepared(variant))
            if call is not None:
                ready[name] = (call, scenario.calls)
        try:
            # What the servers and their imports allocated is no garbage of any call: without the freeze every
            # collection would walk it, and the peer that runs first would pay for the largest.
            gc.collect()
            gc.freeze()
            for name, (call, calls) in ready.items():
                samples[name] = []
                await _batch(name, call, size=min(effort.warm_up, calls))
            for _ in range(min([effort.rounds, *most])):
                for name, (call, calls) in rng.sample(list(ready.items()), k=len(ready)):
                    # Each batch starts clean and collects on its own account: a peer pays for its garbage only.
                    gc.collect()
                    samples[name].append(await _batch(name, call, size=effort.batch(calls)))
        finally:
            gc.unfreeze()
    return samples


async def _batch(name: str, call: Call, *, size: int) -> tuple[float, ...]:
    async def run() -> tuple[float, ...]:
        taken = [await call() for _ in range(size)]
        return tuple(sum(column) / size for column in zip(*taken, strict=True))

    try:
        # A task of its own: context variables that one peer leaves behind do not slow down the next.
        return await asyncio.create_task(run())
    except WrongReply as error:
        raise PeerFailed(f"{name}: {error}") from error
