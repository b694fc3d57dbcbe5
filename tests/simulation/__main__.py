"""Run simulated histories: `python -m tests.simulation --seeds 1-1000`, or one of them with `--seeds 7`.

With `--faults`, put each known fault into the code, and show the first history that reveals it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from tests.simulation.faults import FAULTS, found
from tests.simulation.world import History, simulate

_BLOCK: Final = 25
_FAULT_SEEDS: Final = range(1, 2001)


class Totals(NamedTuple):
    """Counts of some histories, and the texts of those that broke a promise."""

    histories: int
    steps: int
    transitions: int
    hours: float
    broken: list[str]


def run(seeds: Sequence[int], *, calls: int) -> Totals:
    """Run histories, and count."""
    logging.disable(logging.CRITICAL)
    ran: list[History] = [simulate(seed, calls=calls) for seed in seeds]
    return Totals(
        len(ran),
        sum(history.steps for history in ran),
        sum(history.transitions for history in ran),
        sum(history.seconds for history in ran) / 3600,
        [history.text() for history in ran if history.broken],
    )


def reveal(number: int) -> tuple[str, History | None]:
    """Return the name of a fault, and the first history that reveals it."""
    logging.disable(logging.CRITICAL)
    fault = FAULTS[number]
    return fault.__name__, found(fault, _FAULT_SEEDS)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-1000", help="a seed, or the first and the last one")
    parser.add_argument("--calls", type=int, default=4, help="the number of clients of each history")
    parser.add_argument("--workers", type=int, default=1, help="the number of processes")
    parser.add_argument("--faults", action="store_true", help="show that each known fault is found")
    parser.add_argument("--whole", action="store_true", help="show everything that happened")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if len(seeds) == 1:
        logging.disable(logging.CRITICAL)
        history = simulate(seeds[0], calls=given.calls)
        print(history.text(whole=given.whole))
        return bool(history.broken)
    began, failed = time.monotonic(), False
    blocks = [seeds[at : at + _BLOCK] for at in range(0, len(seeds), _BLOCK)]
    with ProcessPoolExecutor(given.workers) as pool:
        if given.faults:
            for name, history in pool.map(reveal, range(len(FAULTS))):
                failed |= history is None
                told = "not found" if history is None else f"seed {history.seed}: {history.broken[0][:150]}"
                print(f"{name.replace('_', ' ')}: {told}", flush=True)
            return failed
        counted: list[Totals] = []
        for totals in pool.map(partial(run, calls=given.calls), blocks):
            counted.append(totals)
            for text in totals.broken:
                print(text, flush=True)
    histories, steps, transitions, hours = (sum(counts) for counts in zip(*(one[:4] for one in counted), strict=True))
    broken = sum(len(one.broken) for one in counted)
    print(
        f"{histories} histories, {broken} broken: {steps} steps, "
        f"{transitions} transitions, {hours:.0f} simulated hours in {time.monotonic() - began:.0f} s"
    )
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
