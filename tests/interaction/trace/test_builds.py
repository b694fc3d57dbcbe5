"""A build is spelled alike in every view, so that users can search for it."""

import functools
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from mcp.client import Client

from roundtrip import Elicit, Recorder, Resolve, Server
from roundtrip.cli import main
from roundtrip.doctor.facts import Facts
from roundtrip.doctor.findings import builds_text
from roundtrip.server.probe import PROBE_TOOL
from roundtrip.testing import LegByLeg
from roundtrip.trace.page.data import data_of
from roundtrip.trace.reading.calls import join
from roundtrip.trace.reading.transcripts import files_of, read_files
from tests.kit.shops import Seat


def server(path: Path, build: str | None, message: str) -> Server[Any]:
    server = Server[Any]("cinema", keys=["7f" * 32], build=build, probe=True, trace=Recorder(path, reveal="all"))

    async def seat() -> Elicit[Seat]:
        return Elicit(message, Seat)

    @server.tool()
    async def book(seat: Annotated[Seat, Resolve(seat)]) -> str:
        return seat.row

    return server


async def asked_on_both(one: Server[Any], other: Server[Any]) -> str:
    legs = LegByLeg([one, other])
    await legs.leg("book")
    await legs.leg("book", answers={"seat": {"row": "back"}}, state=legs.token)
    return legs.token


async def facts_of(server: Server[Any]) -> Facts:
    async with Client(server, mode="2026-07-28") as client:
        return Facts.model_validate((await client.call_tool(PROBE_TOOL, {})).structured_content)


def test_every_view_spells_a_build_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builds, shown = ("2026.11", "fedcba9876543210" * 2), ("2026.11", "fedcba987654")
    path = tmp_path / "calls.jsonl"
    one, other = server(path, builds[0], "Which row?"), server(path, builds[1], "Front or back?")
    token = anyio.run(asked_on_both, one, other)
    (call,) = join(read_files(files_of([path])).lines).calls.values()

    def printed(*arguments: str) -> str:
        assert main(["trace", *arguments, str(path)][: None if arguments[0] != "token" else -1]) in (0, 1)
        return capsys.readouterr().out

    assert printed("ls").split()[-1] == shown[0]
    assert f"build {shown[1]}, after {shown[0]}" in printed("show", call.id)
    assert f"between build {shown[0]} and build {shown[1]}" in printed("explain", call.id)
    (tmp_path / "token.txt").write_text(token)
    token_lines = printed("token", str(tmp_path / "token.txt")).splitlines()
    assert [line.split()[-1] for line in token_lines if line.strip().startswith("build")] == [shown[1]]
    page = data_of(call)
    assert ["Build", shown[0]] in page["facts"]
    assert ["Build", f"{shown[0]} before, now {shown[1]}"] in page["steps"][1]["facts"]
    facts = [anyio.run(functools.partial(facts_of, one)), anyio.run(functools.partial(facts_of, other))]
    assert [builds_text(each) for each in facts] == [f"build {name}" for name in shown]
