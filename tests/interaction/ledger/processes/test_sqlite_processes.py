"""Processes that share a SQLite ledger, and one that loads no library of a ledger."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.interaction.ledger.processes.contender import contend
from tests.kit.forks import piped
from tests.kit.hosts import ROOT


def test_of_several_processes_that_claim_at_once_one_may(tmp_path: Path) -> None:
    """All of them also create the file at the same time."""
    with ExitStack() as stack:
        arguments = [(str(tmp_path / "ledger.db"), str(number)) for number in range(4)]
        contenders = [stack.enter_context(piped(contend, *words, cwd=ROOT)) for words in arguments]
        for one in contenders:
            assert one.stdout.readline() == "ready\n"
        for one in contenders:
            print("go", file=one.stdin, flush=True)
        said = [(one.stdout.read(), one.stderr.read(), one.process.wait(60)) for one in contenders]
    assert [(errors, code) for _, errors, code in said] == [("", 0)] * 4
    for standings in zip(*(lines.split() for lines, _, _ in said), strict=True):
        assert sorted(standings) == ["granted"] + ["running"] * 3


_FORKED = """
import os
import sys
import anyio
from roundtrip.ledger import SqliteLedger

ledger = SqliteLedger(sys.argv[1])

async def claim(key, holder):
    return (await ledger.claim(key, "a", holder=holder, lease=60, keep=60)).status.value

assert anyio.run(claim, "call", "parent") == "granted"
ledger._lock.acquire()  # as if another thread were at it
child = os.fork()
if child == 0:
    print(anyio.run(claim, "call", "child"), anyio.run(claim, "of the child", "child"), flush=True)
    os._exit(0)
ledger._lock.release()
os.waitpid(child, 0)
print(anyio.run(claim, "of the child", "parent"), anyio.run(claim, "of the parent", "parent"))
"""


def test_a_ledger_goes_on_after_a_fork(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _FORKED, str(tmp_path / "ledger.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.stderr) == (["running", "granted", "running", "granted"], "")


def test_a_server_without_such_a_ledger_loads_neither_library() -> None:
    code = "import roundtrip, sys; roundtrip.Server('x'); print([m for m in ('sqlite3', 'redis') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
