"""A `request_state` that an author returns by hand: sealed on its way, returned unchanged."""

from typing import Annotated, Any

import pytest
from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.mcpserver.prompts.base import Prompt
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitResult,
    InputRequiredResult,
)

from roundtrip import Context, InvalidSignature, Resolve, Server
from roundtrip.testing import ACCEPT, Era, LegByLeg, User
from tests.interaction.protocol.by_hand import by_hand
from tests.kit.players import text_of
from tests.kit.shops import KEY, Choice, sure
from tests.kit.token_readings import readings

pytestmark = pytest.mark.anyio
SECRET = 'round 1: {"margin": "0.42"} ~ \u00fc\u4e16 "quoted" \\ \n end'


def answer(context: Context[Any, Any]) -> str:
    response = (context.input_responses or {})["sure"]
    assert isinstance(response, ElicitResult)
    return f"{response.content} {context.request_state == SECRET}"


def shop() -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY])

    @server.tool()
    async def order(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        return by_hand(SECRET) if ctx.request_state is None else answer(ctx)

    @server.tool()
    async def stateless(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        return by_hand(None) if not ctx.input_responses else "answered"

    @server.tool()
    async def bare_state(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        return InputRequiredResult(request_state="wait") if ctx.request_state is None else ctx.request_state

    @server.prompt()
    async def review(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        return by_hand(SECRET) if ctx.request_state is None else answer(ctx)

    @server.resource("page://{name}")
    async def page(name: str, ctx: Context[Any, Any]) -> str | InputRequiredResult:
        return by_hand(SECRET) if ctx.request_state is None else f"{name} {answer(ctx)}"

    return server


ANSWERED: dict[str, Any] = {"sure": ElicitResult(action="accept", content={"ok": True})}
EXPECTED = "{'ok': True} True"


async def leg(kind: str, server: Server[Any], **answered: Any) -> Any:
    async with Client(server, mode=Era.RETRY.value) as client:
        if kind == "tool":
            return await client.session.call_tool("order", {}, allow_input_required=True, **answered)
        if kind == "prompt":
            return await client.session.get_prompt("review", allow_input_required=True, **answered)
        return await client.session.read_resource("page://one", allow_input_required=True, **answered)


@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
async def test_authored_state_survives_sealed_on_another_instance(kind: str) -> None:
    """Shows S2."""
    token = (await leg(kind, shop())).request_state
    assert EXPECTED in repr(await leg(kind, shop(), request_state=token, input_responses=ANSWERED))
    for reading in readings(token):
        assert b"margin" not in reading
        assert b"0.42" not in reading


async def test_lone_questions_and_lone_states_pass_unchanged() -> None:
    """Shows S2."""
    hopper = LegByLeg(shop)
    await hopper.leg("stateless")
    assert hopper.rounds[0].request_state is None
    assert text_of(await hopper.leg("stateless", answers=ANSWERED)) == "answered"
    await hopper.leg("bare_state")
    assert hopper.rounds[1].input_requests is None
    assert text_of(await hopper.leg("bare_state", state=hopper.token)) == "wait"


@pytest.mark.parametrize("state", ["mine", None])
async def test_answers_to_roundtrip_stay_beside_questions_by_hand(state: str | None) -> None:
    server, seen = Server[Any]("shop", keys=[KEY]), list[Any]()

    @server.tool(confirm="Order?")
    async def order(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        count = await ctx.ask("count", "How many?", int)
        seen.append((sorted(ctx.input_responses or ()), ctx.request_state))
        return by_hand(state) if not ctx.input_responses else f"{count}"

    call = await User(server, {"confirm:order": ACCEPT, "count": 3, "sure": {"ok": True}}, era=Era.RETRY).call("order")
    assert (call.names, call.value) == (["confirm:order", "count", "sure"], "3")
    assert seen == [([], None), (["sure"], state)]


async def agree(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"ok": True})


async def test_tool_mixing_resolvers_and_hand_written_questions_is_rejected() -> None:
    server = Server("shop")

    async def both(choice: Annotated[Choice, Resolve(sure)]) -> str | InputRequiredResult:
        return by_hand("x")

    with pytest.raises(InvalidSignature, match=r"'both'.*in one of these two ways"):
        server.add_tool(both)
    assert await server.list_tools() == []


async def test_tool_hiding_its_hand_written_question_fails_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("shop", keys=[KEY])

    async def price() -> int:
        return 1

    @server.tool(structured_output=False)
    async def both(price: Annotated[int, Resolve(price)]) -> Any:
        return by_hand("x")

    result = await LegByLeg([server]).leg("both")
    assert isinstance(result, CallToolResult)
    assert result.is_error
    assert "in one of these two ways" in caplog.text


async def test_a_prompt_object_of_the_sdk_asks_as_well() -> None:
    async def fn(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        return by_hand(SECRET) if ctx.request_state is None else answer(ctx)

    def make() -> Server[Any]:
        server = shop()
        server.add_prompt(Prompt.from_function(fn, name="review_again"))
        return server

    async with Client(make(), mode=Era.RETRY.value, elicitation_callback=agree) as client:
        result = await client.get_prompt("review_again")
    assert EXPECTED in repr(result)


async def test_live_client_of_a_hand_written_call_is_answered_normally() -> None:
    errors: list[MCPError] = []
    for server in (Server("shop"), MCPServer("shop")):

        @server.tool()
        async def order(ctx: Context[Any, Any]) -> str | InputRequiredResult:
            return by_hand(SECRET)

        async with Client(server, mode=Era.LIVE.value, elicitation_callback=agree) as client:
            try:
                await client.call_tool("order")
            except MCPError as error:
                errors.append(error)
    assert errors[0].error == errors[1].error
