"""Test the benchmark of requests per second: it refuses wrong responses, and says how to install wrk."""

import subprocess
import sys

import anyio
import pytest

from benchmarks.fleet.processes import served
from benchmarks.requests import checked
from benchmarks.wire import WrongReply, call
from benchmarks.workloads import confirm, plain
from tests.kit.hosts import ROOT, WAIT
from tests.kit.programs import needs

pytestmark = pytest.mark.anyio


def _run(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = None if path is None else {"PATH": path}
    command = [sys.executable, "-m", "benchmarks", "--requests", "--quick", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT, check=False)


@needs("wrk")
def test_requests_per_second_are_printed() -> None:
    done = _run("--only", "ask", "--variant", "sdk", "--variant", "roundtrip")
    assert done.returncode == 0, done.stderr
    assert "requests per second, one question, ask leg" in done.stdout
    assert done.stdout.count("/s ") == 2


def test_missing_wrk_is_reported_with_its_package() -> None:
    done = _run(path="/nowhere")
    assert done.returncode == 2
    assert "apt-get install wrk" in done.stderr


async def test_server_of_another_call_is_refused_before_timing() -> None:
    with served("starlette", work="elicit") as (server,):
        with anyio.fail_after(WAIT):
            assert await checked(server, call(), confirm()) == '"0: really?"'
            with pytest.raises(WrongReply, match="really"):
                await checked(server, call(), plain())
