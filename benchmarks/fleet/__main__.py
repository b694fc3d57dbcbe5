"""Throughput with several processes, and the memory that waiting calls need: `python -m benchmarks.fleet`."""

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from benchmarks.fleet.memory import MemoryUse, awaiting, sessions
from benchmarks.fleet.throughput import Throughput, throughput

_PROCESSES: Final = (1, 2, 4)
_PARTS: Final = ("throughput", "awaiting", "sessions")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: checks everything, measures hardly")
    parser.add_argument("--only", choices=_PARTS, action="append", help="one part; may be repeated")
    parser.add_argument("--calls", type=_positive, metavar="N", help="three-round calls for each number of processes")
    parser.add_argument("--awaiting", type=_positive, metavar="N", help="calls that await input (default 100000)")
    parser.add_argument("--sessions", type=_positive, metavar="N", help="legacy sessions that do (default 500)")
    options = parser.parse_args(arguments)
    quick: bool = options.quick
    parts: Sequence[str] = options.only or _PARTS
    if "throughput" in parts:
        calls: int = options.calls or (40 if quick else 4000)
        print(_speeds([throughput(count, calls=calls) for count in (_PROCESSES[:2] if quick else _PROCESSES)]))
    if "awaiting" in parts:
        held: int = options.awaiting or (200 if quick else 100_000)
        print(_memory("roundtrip, calls that await input", awaiting(held, warm_up=50 if quick else 5000)))
    if "sessions" in parts:
        held = options.sessions or (5 if quick else 500)
        print(_memory("SDK, legacy sessions with a question open", sessions(held, warm_up=1 if quick else 50)))
    print(f"CPython {platform.python_version()}, {os.cpu_count()} cores; mcp {version('mcp')}")
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _speeds(measured: Sequence[Throughput]) -> str:
    lines = ["processes  calls/s  server ms/call  client ms/call  cores: servers  client"]
    lines += [
        f"{one.processes:>9}  {one.calls / one.seconds:>7.0f}  {1000 * one.server_cpu / one.calls:>14.2f}  "
        f"{1000 * one.client_cpu / one.calls:>14.2f}  {one.server_cpu / one.seconds:>14.2f}  "
        f"{one.client_cpu / one.seconds:>6.2f}"
        for one in measured
    ]
    return "\n".join(["three-round calls, every leg to the next process; ms of processor time", *lines, ""])


def _memory(what: str, held: MemoryUse) -> str:
    grown = held.after - held.before
    return (
        f"{what}: {held.calls}\n"
        f"  {held.before / 2**20:.1f} MiB before, {held.after / 2**20:.1f} MiB with them "
        f"({100 * grown / held.before:+.1f} %), {grown / held.calls:.0f} bytes for each\n"
    )


if __name__ == "__main__":
    sys.exit(main())
