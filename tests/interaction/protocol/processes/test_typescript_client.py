"""The TypeScript SDK's client answers a tool's questions over HTTP, on both eras.

Skipped where the npm package `@modelcontextprotocol/client`, or Node, is not found; `.ci/run` installs both in `.ci`.
"""

from typing import Annotated, Final, Literal

import pytest
from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import Era, served
from tests.clients.drivers import Outcome, Target, ToolCall, driver_of
from tests.kit.programs import needs

pytestmark = [pytest.mark.anyio, needs("node")]

REVISIONS: Final = {Era.RETRY: "2026-07-28", Era.LIVE: "2025-11-25"}
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


async def play(server: Server, era: Era, call: ToolCall) -> Outcome:
    """Call a tool from Node."""
    driver = driver_of("TypeScript SDK 2.4", REVISIONS[era])
    await driver.prepare()
    async with served(server) as url:
        (outcome,) = await driver.run(Target(url), [call])
    return outcome


async def test_typescript_client_answers_every_question(era: Era) -> None:
    bodies: list[str] = []
    said = await play(make_server(bodies), era, ToolCall("book", ARGUMENTS, ANSWERS))
    assert [message.partition("\n")[0] for message in said.asked] == [
        'Book "Solaris"?',
        "Which row for Solaris?",
        "Adults?",
        "Children?",
        "Children?",
    ]
    assert (said.text, said.error, len(bodies)) == ("Solaris, back: 2 and 1.", None, 1)


async def test_typescript_client_takes_a_round_without_questions() -> None:
    bodies: list[str] = []
    said = await play(make_server(bodies), Era.RETRY, ToolCall("charge", {"euros": 20}))
    assert (said.asked, said.data, said.error, len(bodies)) == ([], {"result": 20}, None, 1)
