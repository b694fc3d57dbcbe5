"""Attack tasks, and print what they survived: `python -m tests.chaos.tasks --store redis --tasks 1000 --kills 60`."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio

from tests.chaos.tasks.attack import attack_tasks, read_options
from tests.chaos.tasks.places import KINDS
from tests.chaos.tasks.processes import worksite

INSTANCES: Final = 2
WORKERS: Final = 4


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.tasks", description=__doc__)
    parser.add_argument("--store", choices=KINDS, action="append", help="a store; may be repeated (default: all)")
    options = read_options(parser, arguments, tasks=1000, kills=60)
    failed = False
    for kind in options.store or KINDS:
        with worksite(kind, instances=INSTANCES, workers=WORKERS, lease=options.lease) as site:
            report = anyio.run(partial(attack_tasks, options.plan, site))
        print(f"{kind}: {report.text()}", flush=True)
        failed = failed or bool(report.wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
