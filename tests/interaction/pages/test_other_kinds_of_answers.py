"""Answers of another kind than the question: asked again and counted; none ends a call at once."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

import pytest
from mcp_types import (
    CallToolResult,
    CreateMessageResult,
    ElicitResult,
    InputRequiredResult,
    InputResponse,
    ListRootsResult,
    TextContent,
)
from pydantic import BaseModel

from roundtrip import Context, Elicit, ElicitUrl, ListRoots, Resolve, Sample, Server
from roundtrip.client.legs import LegRequest
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import ACCEPT, LegByLeg, served
from tests.interaction.pages.ways import BOOK, URL, places
from tests.kit.live_wire import session
from tests.kit.players import text_of
from tests.kit.secrets import NEW
from tests.kit.visitors import PLACES, add_export

pytestmark = pytest.mark.anyio

FORM = ElicitResult(action="accept", content={"value": "?"})
ROOTS = ListRootsResult(roots=[])
SAMPLE = CreateMessageResult(role="assistant", content=TextContent(type="text", text="?"), model="m")


async def sent(legs: LegByLeg, leg: LegRequest) -> CallToolResult | InputRequiredResult:
    return cast("CallToolResult | InputRequiredResult", await legs.send(leg))


@places
async def test_agreement_survives_an_answer_of_another_kind(place: str) -> None:
    finished: list[str] = []
    server = Server[Any]("shop", keys=[NEW])
    page = ElicitUrl[str]("Log in.", URL, done=lambda: finished[0] if finished else None, wait=0)
    add_export(server, place, lambda ctx: page)
    legs = LegByLeg(server)
    await legs.leg("export", BOOK)
    await legs.leg("export", BOOK, answers={"login": ACCEPT}, state=legs.token)
    await sent(legs, LegRequest("export", BOOK, {"login": ROOTS}, legs.token))
    finished.append("ada")
    assert text_of(await legs.leg("export", BOOK, answers={}, state=legs.token)) == "Dune for ada"


async def login() -> ElicitUrl[str]:
    return ElicitUrl("Log in.", URL, done=lambda: "ada", wait=0)


async def size() -> Elicit[int]:
    return Elicit("How many?", int)


async def praise() -> Sample:
    return Sample("Praise it.", max_tokens=5)


async def shelves() -> ListRoots:
    return ListRoots()


KINDS: Mapping[str, tuple[Any, InputResponse, InputResponse]] = {
    "page": (login, ROOTS, ElicitResult(action="accept")),
    "form": (size, SAMPLE, ElicitResult(action="accept", content={"value": 3})),
    "sample": (praise, FORM, SAMPLE),
    "roots": (shelves, FORM, ROOTS),
}


def asking(kind: str, place: str, ran: list[str], *, exactly_once: bool = False) -> Server[Any]:
    """Make a tool `pay` that asks one question of a kind."""
    server = Server[Any]("shop", keys=[NEW], ledger=MemoryLedger())
    ask = KINDS[kind][0]

    async def by_resolver(answer: Annotated[Any, Resolve(ask, name="asked")]) -> str:
        ran.append("paid")
        return "paid"

    async def by_body(ctx: Context) -> str:
        await ctx.ask("asked", await ask())
        ran.append("paid")
        return "paid"

    server.add_tool(by_resolver if place == "resolver" else by_body, name="pay", exactly_once=exactly_once)
    return server


@pytest.mark.parametrize(("place", "kind"), list(zip(PLACES * 2, KINDS, strict=True)))
async def test_live_client_that_answers_wrongly_is_asked_again(place: str, kind: str) -> None:
    _, other, right = KINDS[kind]
    first = other.model_dump(mode="json", by_alias=True, exclude_none=True)
    then = right.model_dump(mode="json", by_alias=True, exclude_none=True)
    async with served(asking(kind, place, [])) as url, session(url) as client:
        assert (await client.call("pay", first, then))["content"][0]["text"] == "paid"
        refused = await client.call("pay", first, {"action": 5}, first)
    assert "question 'asked' was answered invalidly 3 times" in refused["content"][0]["text"]


class Terms(BaseModel):
    """Form without fields."""


@pytest.mark.parametrize(("place", "kind"), list(zip(PLACES * 2, KINDS, strict=True)))
async def test_right_answer_counts_after_wrong_kinds_of_exactly_once_calls(
    place: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    _, wrong, right = KINDS[kind]
    legs = LegByLeg(asking(kind, place, ran, exactly_once=True))
    await legs.leg("pay")
    if place == "body":
        # The empty round, which gives the call its name.
        await legs.leg("pay", answers={}, state=legs.token)
    token = legs.token
    for _ in range(2):
        await sent(legs, LegRequest("pay", {}, {"asked": wrong}, legs.token))
    end = await sent(legs, LegRequest("pay", {}, {"asked": wrong}, legs.token))
    assert "question 'asked' was answered invalidly 3 times" in text_of(end)
    assert ran == []
    assert text_of(await sent(legs, LegRequest("pay", {}, {"asked": right}, token))) == "paid"
    assert ran == ["paid"]
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("kind", ["page", "form without fields"])
async def test_unread_answer_of_another_kind_is_no_consent(kind: str) -> None:
    server = Server[Any]("shop", keys=[NEW])
    builds = [False, True, False]
    question: ElicitUrl[bool] | Elicit[Terms] = (
        ElicitUrl("Read the terms.", URL) if kind == "page" else Elicit("Agreed?", Terms)
    )

    @server.tool()
    async def pay(ctx: Context) -> str:
        if builds.pop(0):
            await ctx.ask("first", "Who?", str)
        await ctx.ask("terms", question)
        return "paid"

    legs = LegByLeg(server)
    await legs.leg("pay")
    await sent(legs, LegRequest("pay", {}, {"terms": ROOTS}, legs.token))
    await legs.leg("pay", answers={"first": "ada"}, state=legs.token)
    assert list(legs.questions) == ["terms"]
