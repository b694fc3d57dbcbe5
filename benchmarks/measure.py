"""Measure one scenario's peers side by side, so that a disturbance affects all of them."""

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
    """A peer did not do a scenario's work; the message names the peer and the failure."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Amount of measurement."""

    rounds: int
    batch_scale: float
    warm_up: int

    def batch(self, calls: int) -> int:
        """Return the size of a batch that normally has `calls` calls."""
        return max(1, round(calls * self.batch_scale))


@dataclass(frozen=True, slots=True)
class Figure:
    """One peer's values in one row. Each value is a batch mean."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the value to compare."""
        return median(self.samples)

    @property
    def least(self) -> float:
        """Return the least disturbed value."""
        return min(self.samples)


@dataclass(frozen=True, slots=True)
class Line:
    """One row, with a figure for each peer that can do it. Samples with the same index come from the same round."""

    row: Row
    figures: dict[str, Figure]


async def measure(
    scenario: Scenario, variants: Sequence[Variant], *, effort: Effort, rng: random.Random
) -> tuple[Line, ...]:
    """Measure the scenario with each variant.

    Raises:
        PeerFailed: A variant gave a wrong answer.
    """
    samples = await interleaved({variant.name: (scenario, variant) for variant in variants}, effort=effort, rng=rng)
    return tuple(
        Line(row, {name: Figure(tuple(values[index] for values in rounds)) for name, rounds in samples.items()})
        for index, row in enumerate(scenario.rows)
    )


async def interleaved(
    subjects: Mapping[str, tuple[Scenario, Variant]], *, effort: Effort, rng: random.Random
) -> dict[str, list[tuple[float, ...]]]:
    """Measure each variant with its scenario, round by round, in a new random order each round.

    Raises:
        PeerFailed: A variant gave a wrong answer.
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
            # Freeze what the servers and their imports allocated. Otherwise every collection would traverse it, and the
            # peer that runs first would pay for the largest heap.
            gc.collect()
            gc.freeze()
            for name, (call, calls) in ready.items():
                samples[name] = []
                await _batch(name, call, size=min(effort.warm_up, calls))
            for _ in range(min([effort.rounds, *most])):
                for name, (call, calls) in rng.sample(list(ready.items()), k=len(ready)):
                    # Each batch starts clean and collects for itself, so that a peer pays only for its own garbage.
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
        # A separate task: context variables that one peer leaves behind do not slow down the next.
        return await asyncio.create_task(run())
    except WrongReply as error:
        raise PeerFailed(f"{name}: {error}") from error
