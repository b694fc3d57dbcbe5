"""Confidence intervals for ratios: a bootstrap over rounds that measured both sides."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

__all__ = ["Interval", "interval_of", "ratio_interval"]

_RESAMPLES: Final = 2000
_SEED: Final = 20260728
_TAIL: Final = 0.025


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, and the interval around it with 95 % probability."""

    figure: float
    low: float
    high: float


def ratio_interval(samples: Sequence[float], baseline: Sequence[float]) -> Interval:
    """Return the ratio of the medians. It draws rounds, because a disturbance affects both sides in a round."""

    def ratio(rounds: Sequence[int]) -> float:
        return median(samples[index] for index in rounds) / median(baseline[index] for index in rounds)

    return _bootstrapped(ratio, min(len(samples), len(baseline)))


def interval_of(samples: Sequence[float]) -> Interval:
    """Return the median."""
    return _bootstrapped(lambda rounds: median(samples[index] for index in rounds), len(samples))


def _bootstrapped(statistic: Callable[[Sequence[int]], float], count: int) -> Interval:
    rng = random.Random(_SEED)
    drawn = sorted(statistic(rng.choices(range(count), k=count)) for _ in range(_RESAMPLES))
    return Interval(statistic(range(count)), drawn[int(_TAIL * _RESAMPLES)], drawn[int((1 - _TAIL) * _RESAMPLES) - 1])
