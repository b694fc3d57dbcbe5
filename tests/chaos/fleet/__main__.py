"""Attack a fleet, and print what it survived: `python -m tests.chaos.fleet --calls 1000 --kills 40`."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

import anyio

from tests.chaos.fleet.attack import Plan, Report, attack
from tests.chaos.fleet.processes import Fleet, fleet

INSTANCES: Final = 4


async def _attacked(target: Fleet, plan: Plan) -> Report:
    await target.ready()
    return await attack(plan, target)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.fleet", description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", type=float, help="seconds after which a process counts as dead (default: as always)")
    options = parser.parse_args(arguments)
    if options.kills > options.calls:
        parser.error("--kills must not be more than --calls")
    lease = ["--lease", str(options.lease)] if options.lease is not None else []
    with fleet(INSTANCES, *lease) as target:
        report = anyio.run(_attacked, target, Plan(options.calls, options.kills, options.seed))
    print(report.text())
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
