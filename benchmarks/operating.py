"""Measure what operators wait for, with 1,000 and with 1,000,000 recorded calls.

python -m benchmarks.operating               # takes ten minutes, and 5 GB in the temporary directory
python -m benchmarks.operating --large 50000
"""

import argparse
import asyncio
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from pydantic import BaseModel

from roundtrip import Elicit, Recorder, Resolve, Server
from roundtrip.testing import User

_SMALL: Final = 1000
_RUNS: Final = 15
_INSTANCES: Final = ("ash", "birch", "cedar", "dogwood")
_CALLERS: Final = 1000
_SECONDS_APART: Final = 0.05
_RARE: Final = "caller-7"


class _Choice(BaseModel):
    ok: bool


def _server(path: Path) -> Server[Any]:
    server = Server[Any]("shop", keys=["7f" * 32], build="1", trace=Recorder(path, reveal="all"))

    async def first() -> Elicit[_Choice]:
        return Elicit("First?", _Choice)

    async def second(choice: Annotated[_Choice, Resolve(first)]) -> Elicit[_Choice]:
        return Elicit("Second?", _Choice)

    async def third(choice: Annotated[_Choice, Resolve(second)]) -> Elicit[_Choice]:
        return Elicit("Third?", _Choice)

    @server.tool()
    async def order(title: str, choice: Annotated[_Choice, Resolve(third)]) -> str:
        if title == "broken":
            raise ValueError("out of stock")
        return f"ordered {title}"

    return server


def _recorded(folder: Path, title: str) -> list[dict[str, Any]]:
    """Return the lines of a real call with four legs."""
    path = folder / f"{title}.jsonl"
    answers = {question: {"ok": True} for question in ("first", "second", "third")}
    asyncio.run(User(_server(path), answers).call("order", {"title": title}))
    return [json.loads(line) for line in path.read_text().splitlines()]


def record_many(folder: Path, number: int) -> None:
    """Write transcripts for four instances with many calls, from real calls' lines."""
    folder.mkdir(parents=True)
    with TemporaryDirectory() as name:
        kinds = [[*map(_template, _recorded(Path(name), title))] for title in ("Dune", "broken")]
    chance = random.Random(1)
    files = [(folder / f"{instance}.jsonl").open("w") for instance in _INSTANCES]
    for place in range(number):
        id, caller = f"{chance.getrandbits(72):018x}", f"caller-{chance.randrange(_CALLERS)}"
        at = 1_790_000_000 + place * _SECONDS_APART
        for leg, template in enumerate(kinds[chance.random() < 0.1]):
            line = template
            values = {"@CALLER": caller, "@CALL": id, "@INSTANCE": _INSTANCES[leg // 2], '"@AT"': f"{at + leg / 4:.3f}"}
            values |= {'"@SERVING"': str(place + 1)}
            for mark, value in values.items():
                line = line.replace(mark, value)
            files[leg // 2].write(line)
    for file in files:
        file.close()


def _template(line: dict[str, Any]) -> str:
    changed = {**line, "call": "@CALL", "instance": "@INSTANCE", "at": "@AT", "serving": "@SERVING"}
    if line["event"] == "began":
        changed["principal"] = "@CALLER"
    return f"{json.dumps(changed, separators=(',', ':'))}\n"


def _least(work: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _measure(folder: Path) -> dict[str, float]:
    """Return the seconds for each operation, and the pages' memory in MiB."""
    roundtrip = [sys.executable, "-m", "roundtrip"]
    began = time.perf_counter()
    subprocess.run([*roundtrip, "trace", "index", str(folder)], check=True, stdout=subprocess.DEVNULL)
    found = {"index": time.perf_counter() - began}
    ls = [*roundtrip, "trace", "ls", "--state", "failed", "--principal", _RARE, "--limit", "20", str(folder)]
    found["ls"] = _least(lambda: subprocess.run(ls, check=False, stdout=subprocess.DEVNULL))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with subprocess.Popen([*roundtrip, "ui", str(folder)], stdout=subprocess.PIPE, text=True) as running:
        try:
            address = running.stdout.readline().strip() if running.stdout is not None else ""

            def get(place: str) -> bytes:
                with opener.open(f"{address}{place}") as answer:
                    return answer.read()

            calls = json.loads(get("calls.json"))["calls"]
            found["first"] = _least(lambda: get(""))
            found["failed"] = _least(lambda: get(f"?state=failed&principal={_RARE}"))
            found["call"] = _least(lambda: get(f"call?id={calls[0]['call']}"))
            get("fleet.json")
            status = Path(f"/proc/{running.pid}/status").read_text()
            found["memory"] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()
    return found


_ROWS: Final = {
    "ls": "`roundtrip trace ls --state failed --principal P`",
    "first": "the first page of calls",
    "failed": "that page, filtered",
    "call": "the page of a call",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", type=int, default=1_000_000, metavar="CALLS")
    options = parser.parse_args(arguments)
    # The broken calls are written only to the transcripts.
    logging.disable(logging.CRITICAL)
    os.environ.pop("ROUNDTRIP_TRACE", None)
    with TemporaryDirectory(prefix="roundtrip-operating-") as name:
        measured: list[dict[str, float]] = []
        for number in (_SMALL, options.large):
            record_many(Path(name) / str(number), number)
            measured.append(_measure(Path(name) / str(number)))
    small, large = measured
    for key, row in _ROWS.items():
        print(f"{row}: {large[key] / small[key]:.2f} times")
    print(f"memory of `roundtrip ui`: {small['memory']:.0f} and {large['memory']:.0f} MiB")
    print(f"making the index: {large['index']:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
