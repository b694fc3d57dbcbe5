"""The trace of a task says what it waits for, and how it ended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roundtrip import Context, Recorder, Server
from roundtrip.cli import main
from roundtrip.testing import Era, TaskUnfinished, User

pytestmark = pytest.mark.anyio
KEY = b"k" * 32


def shop(transcript: Path) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], trace=Recorder(transcript))

    @server.tool(task="required")
    async def pay(ctx: Context) -> str:
        return await ctx.wait_for("payment")

    @server.tool(task="required")
    async def nap(ctx: Context) -> str:
        await ctx.sleep(0.01)
        return "awake"

    @server.tool(task=True, confirm="Ship?")
    async def ship() -> str:
        return "shipped"

    return server


@pytest.fixture
def trace_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def said(*command: str) -> str:
        capsys.readouterr()
        assert main(["trace", *command, "last", str(tmp_path / "calls.jsonl")]) == 0
        return capsys.readouterr().out

    return said


async def test_waiting_task_names_its_signal(tmp_path: Path, trace_of: Callable[..., str]) -> None:
    server = shop(tmp_path / "calls.jsonl")
    with pytest.raises(TaskUnfinished):
        await User(server, era=Era.TASK, patience=0.05).call("pay")
    assert "waits for the signal 'payment', still waits" in trace_of("show")
    assert "The task waits for the signal 'payment', and no worker holds it" in trace_of("explain")


async def test_task_that_slept_shows_until_when(tmp_path: Path, trace_of: Callable[..., str]) -> None:
    await User(shop(tmp_path / "calls.jsonl"), era=Era.TASK).call("nap")
    shown = trace_of("show")
    assert "tools/call · task" in shown
    assert "waits until 2" in shown
    assert "went on after" in shown
    assert "Nothing to explain" in trace_of("explain")


async def test_confirmed_task_ends_as_completed(tmp_path: Path, trace_of: Callable[..., str]) -> None:
    await User(shop(tmp_path / "calls.jsonl"), {"confirm:ship": {}}, era=Era.TASK).call("ship")
    assert trace_of("show").splitlines()[0].endswith("ship  completed")
