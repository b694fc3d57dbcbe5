"""Processes that share a ledger, and one that loads no library of a ledger."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from tests.interaction.ledger.processes.contender import contend
from tests.interaction.ledger.waiter import connected, wait_for_call
from tests.kit.forks import run_piped
from tests.kit.hosts import ROOT
from tests.kit.programs import needs
from tests.kit.redis_server import RedisServer


def test_of_several_processes_that_claim_at_once_one_may(tmp_path: Path) -> None:
    """All of them also create the file at the same time."""
    with ExitStack() as stack:
        arguments = [(str(tmp_path / "ledger.db"), str(number)) for number in range(4)]
        contenders = [stack.enter_context(run_piped(contend, *words, cwd=ROOT)) for words in arguments]
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


_UNUSED = """
import sys
from roundtrip import Server

Server("x").add_tool(lambda: "", name="work", task=True)
print([name for name in ("sqlite3", "redis", "docket", "uncalled_for") if name in sys.modules])
"""


def test_a_server_loads_no_library_that_it_does_not_use() -> None:
    done = subprocess.run([sys.executable, "-c", _UNUSED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.db")
    else:
        redis: RedisServer = request.getfixturevalue("redis")
        yield redis.url
        redis.command("flushall")


@pytest.mark.parametrize("address", ["sqlite", pytest.param("redis", marks=needs("redis"))], indirect=True)
@pytest.mark.parametrize("is_released", [False, True])
def test_another_process_hears_how_a_claim_ended(address: str, tmp_path: Path, is_released: bool) -> None:
    async def claim() -> int:
        ledger = connected(address)
        answer = await ledger.claim("call", "a", holder="one", lease=60, keep=60)
        await ledger.aclose()
        return answer.epoch

    async def end(epoch: int) -> None:
        ledger = connected(address)
        if is_released:
            await ledger.release("call", holder="one", epoch=epoch)
        else:
            assert await ledger.settle("call", holder="one", epoch=epoch, result="r", keep=60)
        await ledger.aclose()

    epoch = anyio.run(claim)
    with run_piped(wait_for_call, address, cwd=tmp_path) as process:
        # The second time, it has begun to listen to other processes.
        assert [process.stdout.readline() for _ in range(2)] == ["waits\n"] * 2
        anyio.run(end, epoch)
        while (line := process.stdout.readline()) == "waits\n":
            pass
    assert line == ("free\n" if is_released else "r\n")
