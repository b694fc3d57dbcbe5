"""Prompts and resource templates ask as tools do: by resolvers and from their bodies, on both eras, on any instance."""

from typing import Annotated, Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult, ListRootsResult
from pydantic import BaseModel

from roundtrip import Context, Elicit, Event, ListRoots, Resolve, Server
from roundtrip.client.legs import ERAS
from roundtrip.testing import Era, Steps
from tests.interaction.handlers.asking import KINDS, Legs, Tone, add, ask_tone, failing, fetch, kinds, said
from tests.kit.players import Person, connect, roots, sample
from tests.kit.secrets import NEW

pytestmark = pytest.mark.anyio


WORDINGS = ["Praise Dune in what tone?", "And how long, if solemn?"]


class Length(BaseModel):
    words: int


async def shop_name() -> str:
    return "the shop"


async def ask_length(tone: Annotated[Tone, Resolve(ask_tone)]) -> Elicit[Length]:
    return Elicit(f"And how long, if {tone.tone}?", Length)


def by_resolvers(
    kind: str, trace: Steps | None = None, *, plain: bool = True, server: Server[Any] | None = None
) -> Server[Any]:
    del plain

    def praise(
        title: str,
        shop: Annotated[str, Resolve(shop_name)],
        tone: Annotated[Tone, Resolve(ask_tone)],
        length: Annotated[Length, Resolve(ask_length)],
    ) -> str:
        return f"{shop} praises {title}: {tone.tone}, {length.words}"

    return add(server or Server("shop", keys=[NEW], trace=trace), kind, praise)


def by_body(
    kind: str, trace: Steps | None = None, *, plain: bool = False, server: Server[Any] | None = None
) -> Server[Any]:
    async def praise(title: str, ctx: Context) -> str:
        tone = await ctx.ask("ask_tone", f"Praise {title} in what tone?", Tone)
        shop = await ctx.step("shop", shop_name)
        length = await ctx.ask("ask_length", f"And how long, if {tone.tone}?", Length)
        return f"{shop} praises {title}: {tone.tone}, {length.words}"

    def praise_plainly(title: str, ctx: Context) -> str:
        tone = ctx.blocking.ask("ask_tone", f"Praise {title} in what tone?", Tone)
        length = ctx.blocking.ask("ask_length", f"And how long, if {tone.tone}?", Length)
        return f"the shop praises {title}: {tone.tone}, {length.words}"

    return add(server or Server("shop", keys=[NEW], trace=trace), kind, praise_plainly if plain else praise)


ways = pytest.mark.parametrize("way", [by_resolvers, by_body])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("kind", "plain"), [("prompt", False), ("template", True)])
@ways
async def test_handler_asks_for_its_parameters_and_receives_the_answers(
    kind: str, way: Any, plain: bool, era: Era
) -> None:
    """Shows S1."""
    person = Person({"tone": "solemn"}, {"words": 9})
    async with connect(way(kind, plain=plain), era, person) as client:
        assert said(await fetch(client, kind, "Dune")) == "the shop praises Dune: solemn, 9"
    assert person.messages == WORDINGS


@kinds
@ways
async def test_handler_resumes_on_another_instance_with_every_leg(kind: str, way: Any) -> None:
    """Shows S1, S2."""
    legs = Legs(lambda: way(kind), kind)
    first = await legs("Dune")
    assert isinstance(first, InputRequiredResult)
    assert (first.result_type, legs.asked) == ("input_required", ["ask_tone"])
    request = (first.input_requests or {})["ask_tone"]
    assert isinstance(request, ElicitRequest)
    assert isinstance(request.params, ElicitRequestFormParams)
    assert request.params.requested_schema["properties"]["tone"]["default"] == "plain"
    await legs("Dune", {"ask_tone": {"tone": "solemn"}})
    assert legs.asked == ["ask_length"]
    assert said(await legs("Dune", {"ask_length": {"words": 9}})) == "the shop praises Dune: solemn, 9"


@pytest.mark.parametrize(("kind", "way"), [("prompt", by_resolvers), ("template", by_body)])
async def test_handler_asks_again_for_invalid_and_missing_answers(kind: str, way: Any) -> None:
    """Shows S7."""
    legs = Legs(lambda: way(kind), kind)
    await legs("Dune")
    await legs("Dune", {"ask_tone": {"tone": "solemn"}})
    for answers in ({"ask_length": {"words": "many"}}, {}, {"not asked": {"words": 1}}):
        await legs("Dune", answers)
        assert legs.asked == ["ask_length"]
    assert said(await legs("Dune", {"ask_length": {"words": 9}})).endswith("solemn, 9")


@ways
@pytest.mark.parametrize(
    ("kind", "action", "era"), [("prompt", "decline", Era.RETRY), ("template", "cancel", Era.LIVE)]
)
async def test_declining_ends_it_with_an_error_that_says_so(kind: str, way: Any, action: str, era: Era) -> None:
    trace = Steps()
    async with connect(way(kind, trace), era, Person(action)) as client:
        error = await failing(client, kind, "Dune")
    assert f"The user {action}" in error.message
    assert ("'ask_tone'" if way is by_body else "'tone'") in error.message
    assert trace.events[-1] is Event.DECLINE


@pytest.mark.parametrize("era", ERAS)
@kinds
async def test_handler_asks_the_client_software_several_questions_at_once(kind: str, era: Era) -> None:
    async def praise(title: str, ctx: Context) -> str:
        answers = await ctx.ask_all({"tone": Elicit("Tone?", Tone), "roots": ListRoots()})
        text = (await ctx.sample(f"Praise {title}", name="text")).text
        found: ListRootsResult = answers["roots"]
        return f"{answers['tone'].tone}, {len(found.roots)}, {text}"

    server = add(Server("shop"), kind, praise)
    async with connect(
        server, era, Person({"tone": "dry"}), sampling_callback=sample, list_roots_callback=roots
    ) as client:
        assert said(await fetch(client, kind, "Dune")) == "dry, 1, echo: Praise Dune"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("kind", "way"), [("prompt", by_resolvers), ("template", by_body)])
async def test_error_names_the_capability_that_the_client_lacks(kind: str, way: Any, era: Era) -> None:
    """Shows S6."""
    async with connect(way(kind), era) as client:
        error = await failing(client, kind, "Dune")
    assert (error.code, error.data) == (-32021, {"requiredCapabilities": {"elicitation": {"form": {}}}})


@kinds
@ways
async def test_its_token_is_good_for_nothing_else(kind: str, way: Any) -> None:
    """Shows S4, S5."""

    legs = Legs(lambda: way("template", server=way("prompt")), kind)
    await legs("Dune")
    token = legs.token
    other = next(other for other in KINDS if other != kind)
    for title, to in (("Emma", kind), ("Dune", other)):
        legs.token = token
        with pytest.raises(MCPError) as caught:
            await legs(title, {"ask_tone": {"tone": "solemn"}}, kind=to)
        assert (caught.value.code, caught.value.message) == (-32602, "Invalid or expired requestState")


@kinds
async def test_handler_token_is_invalid_for_a_tool_of_equal_name(kind: str) -> None:
    """Shows S4, S5."""
    server = by_resolvers(kind)

    @server.tool("praise")
    async def praise(title: str, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
        raise AssertionError("it never runs")

    legs = Legs(lambda: server, kind)
    await legs("Dune")
    caught: list[MCPError] = []
    async with connect(server, Era.RETRY, Person()) as client:
        try:
            await client.session.call_tool("praise", {"title": "Dune"}, input_responses={}, request_state=legs.token)
        except MCPError as error:
            caught.append(error)
    assert [error.code for error in caught] == [-32602]


@kinds
async def test_crash_is_logged_and_hidden_from_the_client(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def praise(title: str, tone: Annotated[Tone, Resolve(ask_tone)]) -> str:
        raise ValueError("the shelf fell down")

    async with connect(add(Server("shop"), kind, praise), Era.RETRY, Person({"tone": "dry"})) as client:
        error = await failing(client, kind, "Dune")
    assert "shelf" not in error.message
    assert "the shelf fell down" in caplog.text
