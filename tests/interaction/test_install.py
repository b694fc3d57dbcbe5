"""A FastMCP 4 server whose tools ask, through the `install` that `roundtrip.Server` itself uses."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest
from fastmcp import Client, FastMCP
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp_types import CallToolResult, ElicitResult, InputRequiredResult, TextContent
from pydantic import BaseModel

from roundtrip import Context, Elicit, Resolve
from roundtrip.engine.leg import Limits
from roundtrip.server.functions import AskingFunction, read_signature
from roundtrip.server.install import install, wrap
from roundtrip.server.keys import protect
from roundtrip.server.leg_runner import result_of
from roundtrip.server.parts import Effects, Parts
from roundtrip.server.requests import Incoming, asking_request
from roundtrip.system import SYSTEM
from roundtrip.testing import Era
from roundtrip.trace.writing.tracers import Tracers

pytestmark = pytest.mark.anyio

BOOKED = "Rosa: by the window for 4"
QUESTIONS = ["How many are you?", "Which table?"]


class Party(BaseModel):
    people: int


async def ask_size() -> Elicit[Party]:
    return Elicit(QUESTIONS[0], Party)


async def book(restaurant: str, ctx: Context, party: Annotated[Party, Resolve(ask_size)]) -> str:
    """Book a table."""
    table = await ctx.ask("table", QUESTIONS[1], str)
    return f"{restaurant}: {table} for {party.people}"


def asking(mcp: FastMCP[Any]) -> Callable[[Callable[..., Any]], Callable[..., Awaitable[Any]]]:
    """Install roundtrip into a FastMCP server, and return the decorator that wraps functions that ask."""
    limits = Limits(ttl=60.0, max_age=600.0)
    protection = protect(mcp.name, ttl=limits.ttl, keys=["7f" * 32], environment={}, system=SYSTEM)
    parts = Parts(protection, Effects(None, Tracers(()), InMemorySubscriptionBus()), limits)
    legs = install(mcp._mcp_server, parts)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]

    def decorate(fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        signature = read_signature(fn, kind="tool", name=fn.__name__)
        function = AskingFunction(signature, {"restaurant": "restaurant"}, limits=limits, build=None)

        async def serve(arguments: dict[str, Any], _: None) -> Any:
            request = asking_request()
            assert request is not None
            return result_of(await legs.run(function, arguments, Incoming.of(request.context)))

        return wrap(signature, serve, context_type=None)

    return decorate


def text_of(result: Any) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def restaurant() -> FastMCP[Any]:
    mcp = FastMCP[Any]("restaurant")
    mcp.tool(asking(mcp)(book))
    return mcp


async def test_fastmcp_tool_asks_on_both_eras(era: Era) -> None:
    asked: list[str] = []

    async def answer(message: str, response_type: Any, params: Any, context: Any) -> ElicitResult:
        asked.append(message)
        field = next(iter(params.requested_schema["properties"]))
        return ElicitResult(action="accept", content={field: 4 if field == "people" else "by the window"})

    async with Client[Any](restaurant(), mode=era.value, elicitation_handler=answer) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool("book", {"restaurant": "Rosa"})
    assert list(tool.input_schema["properties"]) == ["restaurant"]
    assert tool.description == "Book a table."
    assert (asked, text_of(result)) == (QUESTIONS, BOOKED)


async def test_fastmcp_call_hops_between_instances_that_share_a_key() -> None:
    async def leg(**answered: Any) -> Any:
        async with Client[Any](restaurant(), mode=Era.RETRY.value, elicitation_handler=accept) as client:
            return await client.session.call_tool("book", {"restaurant": "Rosa"}, allow_input_required=True, **answered)

    async def accept(message: str, response_type: Any, params: Any, context: Any) -> Any:
        raise AssertionError("this client sends its answers itself")

    first = await leg()
    assert isinstance(first, InputRequiredResult)
    (size,) = first.input_requests or {}
    answer = {size: ElicitResult(action="accept", content={"people": 4})}
    second = await leg(input_responses=answer, request_state=first.request_state)
    assert isinstance(second, InputRequiredResult)
    (table,) = second.input_requests or {}
    (field,) = second.input_requests[table].params.requested_schema["properties"]  # type: ignore[index, union-attr]
    answer = {table: ElicitResult(action="accept", content={field: "by the window"})}
    third = await leg(input_responses=answer, request_state=second.request_state)
    assert isinstance(third, CallToolResult)
    assert text_of(third) == BOOKED
