"""`roundtrip trace` on recordings of real servers, on both eras and as a process."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp_types import ElicitResult

from roundtrip import Context, Recorder, Server
from roundtrip.cli import main
from roundtrip.client.legs import ERAS
from roundtrip.testing import Era
from tests.interaction.trace.orders import order, shop
from tests.interaction.trace.transcribed import calls_of
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


def listed(path: Path, capsys: pytest.CaptureFixture[str], *filters: str) -> list[dict[str, Any]]:
    main(["trace", "ls", "--json", *filters, str(path)])
    return json.loads(capsys.readouterr().out)


async def test_a_call_is_listed_and_shown(era: Era, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await order(shop(path), era)
    (found,) = listed(path, capsys)
    assert (found["tool"], found["state"], found["rounds"]) == ("order", "completed", 3)
    assert found["legs"] == (4 if era is Era.RETRY else 1)
    assert main(["trace", "show", found["call"], str(path)]) == 0
    text = capsys.readouterr().out
    for words in (
        'arguments {"title": "Dune"}',
        "● confirm  asked\n",
        'message "For whom?"',
        'answer to name: accepted {"name": "Ada"}',
        "step reserve  ran in ",
        "the body ran twice" if era is Era.RETRY else "the body ran once",
        "Dune for Ada",
    ):
        assert words in text
    assert ("✓ name  reused\n" in text) == (era is Era.RETRY)
    assert main(["trace", "explain", found["call"], str(path)]) == 0


async def test_the_same_call_on_both_eras_differs_in_nothing(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for era in ERAS:
        await order(shop(path), era)
    await order(shop(path), Era.LIVE, gift=False)
    first, second, third = (found["call"] for found in listed(path, capsys))
    assert main(["trace", "diff", first, second, str(path)]) == 0
    assert main(["trace", "diff", second, third, "--json", str(path)]) == 1
    capsys.readouterr()
    assert main(["trace", "diff", second, third, "--json", str(path)]) == 1
    (difference,) = json.loads(capsys.readouterr().out)["differences"]
    assert (difference["round"], difference["key"], difference["what"]) == (3, "gift", "answer")


async def test_abandoned_question_is_not_reported_as_answered(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server[Any]("shop", trace=Recorder(path))
    given_up = anyio.Event()
    patience = anyio.CancelScope()

    @server.tool()
    async def order(ctx: Context[Any, Any]) -> str:
        with patience:
            await ctx.ask("late", "Sure?", bool)
        given_up.set()
        return "without you"

    async def hesitate(context: Any, params: Any) -> ElicitResult:
        patience.cancel()
        await given_up.wait()
        return ElicitResult(action="cancel")

    with anyio.fail_after(WAIT):
        async with Client(server, mode=Era.LIVE.value, elicitation_callback=hesitate) as client:
            await client.call_tool("order", {})
    (found,) = calls_of(path)
    assert main(["trace", "show", found.id, str(path)]) == 0
    shown = capsys.readouterr().out
    assert "asked by the body, given up after" in shown
    assert "the body stopped waiting for the answer after" in shown
    assert "answered after" not in shown
    assert main(["trace", "export", found.id, "--mermaid", str(path)]) == 0
    assert "stops waiting" in capsys.readouterr().out


def test_tail_follows_files_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["trace", "tail", str(tmp_path / "pipe")]) == 2
    assert "can follow only files and directories" in capsys.readouterr().err
    assert main(["trace", "tail"]) == 2
    assert "no transcript was given; add a file" in capsys.readouterr().err
