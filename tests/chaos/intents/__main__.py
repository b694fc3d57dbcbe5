"""Attack tools that run once per intent, and print what they survived:
`python -m tests.chaos.intents --calls 200 --ledger redis --fault killed`.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial

import anyio

from tests.chaos.fleet.attack import Plan
from tests.chaos.intents.attack import FAULTS, LEDGERS, attack_intents
from tests.chaos.intents.processes import has_release

_CALLS_PER_KILL = 25


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.intents", description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="intents for each fault and ledger")
    parser.add_argument("--ledger", choices=LEDGERS, action="append", help="may be repeated (default: all)")
    parser.add_argument("--fault", choices=[*FAULTS, "all"], action="append", help="may be repeated (default: all)")
    parser.add_argument("--kills", type=int, help=f"deaths or pauses (default: one for {_CALLS_PER_KILL} calls)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    logging.disable(logging.INFO)
    names = options.fault or ["all"]
    failed = False
    for name in FAULTS if "all" in names else names:
        for kind in options.ledger or LEDGERS:
            if (kind == "memory" and not FAULTS[name].in_memory) or (FAULTS[name].old and not has_release()):
                continue
            kills = options.kills or max(2, options.calls // _CALLS_PER_KILL)
            report = anyio.run(partial(attack_intents, Plan(options.calls, kills, options.seed), name, kind))
            rate = report.counted["calls"] / max(report.seconds, 0.001)
            print(f"{name} on {kind}, {rate:.0f} calls/s: {report.text()}", flush=True)
            failed = failed or bool(report.wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
