"""Command line of the benchmarks: measure and print."""

import argparse
import asyncio
import logging
import random
import sys
from collections.abc import Sequence

from benchmarks.everything import scenarios
from benchmarks.fleet.processes import Stack
from benchmarks.measure import Effort, Line, PeerFailed, measure
from benchmarks.report import as_json, origin, table
from benchmarks.requests import MISSING, is_possible, peers, requests_on
from benchmarks.scenarios import Scenario
from benchmarks.targets import HEAD, TARGETS, line_of, measure_targets
from benchmarks.variants import Variant, installed

_SEED = 20260728


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks and return the exit status."""
    options = _parser().parse_args(arguments)
    # Peers log different amounts, and the comparison is not about writing logs.
    logging.disable(logging.CRITICAL)
    if options.requests and not is_possible():
        sys.stderr.write(f"{MISSING}\n")
        return 2
    variants = [variant for variant in installed() if not options.variant or variant.name in options.variant]
    measured = scenarios(quick=options.quick)
    if options.requests:
        variants, measured = peers(options.variant), requests_on(Stack(options.stack))
    effort = Effort(
        rounds=options.rounds or (1 if options.quick else 30 if options.targets else 15),
        batch_scale=0 if options.quick else 1,
        warm_up=0 if options.quick else 5,
    )
    try:
        if options.targets:
            return asyncio.run(_hold_to_targets(only=options.only, effort=effort, quick=options.quick))
        lines = asyncio.run(_measure_all(measured, variants, only=options.only, effort=effort))
    except PeerFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if not lines:
        sys.stderr.write("nothing was selected\n")
        return 2
    sys.stdout.write((as_json if options.json else table)(lines, variants) + "\n")
    return 0


async def _hold_to_targets(*, only: Sequence[str], effort: Effort, quick: bool) -> int:
    """Print each target's line when it is measured; return 1 if roundtrip missed one."""
    targets = [one for one in TARGETS if not only or any(text in one.row for text in only)]
    print(HEAD, flush=True)
    missed = False
    async for verdict in measure_targets(targets, installed(), effort=effort, quick=quick, seed=_SEED):
        print(line_of(verdict), flush=True)
        missed |= verdict.result == "miss"
    print(f"\n{origin()}")
    # The figures from a smoke run mean nothing.
    return 1 if missed and not quick else 0


async def _measure_all(
    measured: Sequence[Scenario], variants: Sequence[Variant], *, only: Sequence[str], effort: Effort
) -> list[Line]:
    rng = random.Random(_SEED)
    lines: list[Line] = []
    for scenario in measured:
        wanted = {row.name for row in scenario.rows if not only or any(text in row.name for text in only)}
        if not wanted:
            continue
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{scenario.rows[0].title}…\r")
        lines += [line for line in await measure(scenario, variants, effort=effort, rng=rng) if line.row.name in wanted]
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: checks everything, measures hardly")
    parser.add_argument("--targets", action="store_true", help="print what roundtrip may cost, and what it does")
    parser.add_argument("--requests", action="store_true", help="measure requests per second over uvicorn, with wrk")
    parser.add_argument(
        "--stack",
        choices=list(Stack),
        default=Stack.PLAIN,
        help="with --requests: what servers run on: uvicorn with h11 and asyncio; with httptools and uvloop; or "
        "roundtrip by `roundtrip serve` with these, and the others without",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with every sample")
    parser.add_argument(
        "--rounds", type=_positive, metavar="N", help="batches of each peer (default 15; for targets 30)"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="rows whose name contains NAME; may be repeated"
    )
    parser.add_argument(
        "--variant", action="append", default=[], metavar="NAME", help="only this peer; may be repeated"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
