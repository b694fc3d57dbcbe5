"""Test the benchmark of requests per second: it refuses wrong responses, and says how to install wrk."""

import subprocess
import sys

import anyio
import pytest

from benchmarks.asgi import Endpoint, serving
from benchmarks.fleet.processes import served
from benchmarks.requests import checked, is_possible, peers, rate
from benchmarks.wire import WrongReply, call
from benchmarks.workloads import Workload, confirm, plain
from tests.docs.pages import ROOT

pytestmark = pytest.mark.anyio
needs_wrk = pytest.mark.skipif(not is_possible(), reason="wrk is not installed")


def _run(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = None if path is None else {"PATH": path}
    command = [sys.executable, "-m", "benchmarks", "--requests", "--quick", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_missing_wrk_is_reported_with_its_package() -> None:
    done = _run(path="/nowhere")
    assert done.returncode == 2
    assert "apt-get install wrk" in done.stderr


@needs_wrk
async def test_wrong_responses_are_not_measured() -> None:
    with served("starlette", work="plain") as (server,):
        with anyio.fail_after(20):
            assert await rate(server, call(), expected='"Ada: hello"') > 0
            with pytest.raises(WrongReply, match="Ada: hello"):
                await rate(server, call(), expected='"Ada: goodbye"')


async def test_server_of_another_call_is_refused_before_timing() -> None:
    with served("starlette", work="elicit") as (server,):
        with anyio.fail_after(20):
            assert await checked(server, call(), confirm()) == '"0: really?"'
            with pytest.raises(WrongReply, match="really"):
                await checked(server, call(), plain())


@pytest.mark.parametrize("workload", [plain(), confirm()], ids=["plain", "ask"])
async def test_starlette_sends_as_many_bytes_as_roundtrip(workload: Workload) -> None:
    async def size(endpoint: Endpoint) -> int:
        request = call()
        response = await endpoint.post(request.body, headers=request.headers)
        assert response.status == 200
        return len(response.body)

    sizes: list[int] = []
    for variant in peers(["roundtrip", "starlette"]):
        app = variant.build(workload)
        assert app is not None
        async with serving(app) as endpoint:
            sizes.append(await size(endpoint))
    ours, bare = sizes
    assert abs(ours - bare) <= 4
