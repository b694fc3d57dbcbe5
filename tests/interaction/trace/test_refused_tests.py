"""Recordings of which `roundtrip trace to-test` writes no test, and why."""

from typing import Any

import pytest

from roundtrip.cli import main
from roundtrip.testing import Era
from tests.interaction.trace.deploys import REPLIES, SHOP, Recording, last_call


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    assert main(["trace", "to-test", *map(str, arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_unconvertible_recording_is_rejected_with_advice(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.call(reveal="arguments,questions")
    call = last_call(recording)
    told = refused(capsys, call, "--server", "shop:server", recording.file)
    assert "its values are not revealed; record with Server(trace=Recorder(path, reveal=" in told
    for name in ("shop.py:server", "shop", ":server", "shop:", "shop:import", "a b:server"):
        told = refused(capsys, call, "--server", name, recording.file)
        assert "a test's server must be an import path, MODULE:SERVER, got" in told
    with pytest.raises(SystemExit) as ended:
        main(["trace", "to-test", call, str(recording.file)])
    assert ended.value.code == 2
    recording.call(answer=lambda params: {**REPLIES, "Your name?": "decline"}[params.message])
    told = refused(capsys, last_call(recording), "--both", "--server", "shop:server", recording.file)
    assert "round 1 differs in the other era; omit --both" in told


NESTING = """

@server.tool()
async def outer(title: str) -> str:
    await server.call_tool("order", {"title": title})
    return "done"
"""


def test_a_live_call_from_within_which_another_asked_is_rejected(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.call(SHOP + NESTING, era=Era.LIVE, tool="outer")
    told = refused(capsys, last_call(recording), "--server", "shop:server", recording.file)
    assert "ran a function that asked over the open connection" in told
