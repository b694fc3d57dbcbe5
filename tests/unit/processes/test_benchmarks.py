"""The benchmark of requests per second, and the flame graphs of a leg: the script and the images of the pages."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

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


_MAX_BYTES: Final = 200_000


def check_flame_graph(image: Path) -> str:
    """Check that an image is small and stands alone, and return its text."""
    text = image.read_text(encoding="utf-8")
    assert len(text.encode()) < _MAX_BYTES
    ElementTree.fromstring(text)
    assert "Starlette.__call__" in text
    # Nothing of the machine on which it was drawn, and nothing that a viewer would load.
    words = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"site-packages|href|url\(|://|[ >\"]/\w", words)
    assert str(ROOT) not in words
    return text


def test_script_draws_both_graphs_and_prints_shares(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.flame", "--seconds", "0.5", "--into", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=True)
    # The shares are of samples, and differ each time.
    assert {len(re.findall(r"\d+%", line)) for line in done.stdout.splitlines()[2:]} == {2}
    for folder in (tmp_path, ROOT / "docs" / "images"):
        check_flame_graph(folder / "plain-call.svg")
        assert "LegRun.serve" in check_flame_graph(folder / "ask-leg.svg")
