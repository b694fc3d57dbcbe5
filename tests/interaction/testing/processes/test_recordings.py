"""Conversations with servers on stdio are recorded, and recordings are played on stdio."""

import re
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from mcp.client.stdio import StdioServerParameters
from mcp.server.stdio import stdio_server

from roundtrip.testing import Era, User
from roundtrip.testing.recordings import record, replay
from tests.interaction.testing.cinemas import cinema
from tests.kit.forks import command_of
from tests.kit.hosts import ROOT, stdio

pytestmark = pytest.mark.anyio


def serve_on_stdio(arguments: Sequence[str]) -> None:
    """Replay a recording over stdio, in a process of its own."""

    async def serve() -> None:
        replayed = replay(arguments[0])
        async with stdio_server() as (read, write):
            await replayed.run(read, write, replayed.create_initialization_options())

    anyio.run(serve)


async def test_recording_of_a_process_is_played_by_another(era: Era, tmp_path: Path) -> None:
    path, answers = tmp_path / "need.json", {re.compile("row for"): "back"}
    async with record(stdio(cinema), path) as tapped:
        then = await User(tapped, answers, era=era).call("need", film="Solaris")
    command, *words = command_of(serve_on_stdio, str(path))
    replayed = StdioServerParameters(command=command, args=words, cwd=ROOT)
    call = await User(replayed, answers, era=era).call("need", film="Solaris")
    assert call.value == then.value == {"film": "Solaris", "row": "back"}
