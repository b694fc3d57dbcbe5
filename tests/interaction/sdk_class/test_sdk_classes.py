"""The SDK's own server classes, whose tools, prompts and templates ask by roundtrip."""

import re
from functools import partial
from typing import Annotated, Any, cast

import pytest
from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.resolve import Elicit as SdkElicit
from mcp.server.mcpserver.resolve import Resolve as SdkResolve
from mcp.server.mcpserver.resources import FunctionResource
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel

import roundtrip
from roundtrip import Context, Depends, Elicit, InvalidSignature, Resolve, ToolError
from roundtrip.adapters.finding import attached
from roundtrip.install import bind, install
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import ACCEPT, DECLINE, Era, User
from roundtrip.testing.networks.fleet import KEYS
from tests.interaction.sdk_class.classes import each_class, high_level, low_level

pytestmark = pytest.mark.anyio


class Seats(BaseModel):
    seats: int


async def ask_seats(film: str) -> Elicit[Seats]:
    return Elicit(f"How many seats for {film}?", Seats)


async def book(film: str, ctx: Context, seats: Annotated[Seats, Resolve(ask_seats)]) -> dict[str, Any]:
    """Book seats.

    Args:
        film: The title.
    """
    row = await ctx.ask("row", "Which row?", str)
    return {"film": film, "seats": seats.seats, "row": row}


@roundtrip.tool(confirm="Delete {path}?", exactly_once=True)
def delete(path: str) -> str:
    return f"deleted {path}"


ANSWERS = {"ask_seats": {"seats": 3}, "row": "middle"}
BOOKED = {"film": "Dune", "seats": 3, "row": "middle"}


@each_class
async def test_tool_asks(make: Any, era: Era) -> None:
    assert (await User(make(book), ANSWERS, era=era).call("book", film="Dune")).value == BOOKED


@pytest.mark.roundtrip(eras="retry", hostile=True)
async def test_tool_asks_on_hostile_networks() -> None:
    """The low-level server takes the same way."""
    assert (await User(partial(high_level, book), ANSWERS).call("book", film="Dune")).value == BOOKED


@each_class
async def test_confirmation_and_ledger_work(make: Any, era: Era) -> None:
    server = make(delete, ledger=MemoryLedger())
    call = await User(server, {"confirm:delete": ACCEPT}, era=era).call("delete", path="/x")
    assert call.text == "deleted /x"
    assert (await User(server, {"confirm:delete": DECLINE}, era=era).call("delete", path="/x")).is_error


@pytest.mark.parametrize(("make", "era"), [(high_level, Era.LIVE), (low_level, Era.RETRY)])
async def test_tool_asks_over_http(make: Any, era: Era) -> None:
    assert (await User(make(book), ANSWERS, era=era, over="http").call("book", film="Dune")).value == BOOKED


@each_class
async def test_client_sees_own_parameters_only(make: Any) -> None:
    async with Client(make(book)) as client:
        (tool,) = (await client.list_tools()).tools
    film = {"title": "Film", "type": "string", "description": "The title."}
    assert (tool.input_schema["properties"], tool.description) == ({"film": film}, "Book seats.")
    assert tool.output_schema is not None


@each_class
async def test_unknown_tool_and_bad_arguments_are_results(make: Any) -> None:
    assert "Unknown tool" in (await User(make(book), allow_error=True).call("other")).text
    with pytest.raises(LookupError, match="the server has no tool 'other'; if the test expects this"):
        await User(make(book)).call("other")
    assert (await User(make(book)).call("book", film=[1])).is_error


async def test_functions_without_markers_stay_the_sdks(era: Era) -> None:
    server = MCPServer[Any]("cinema")
    install(server)

    async def ask(film: str) -> SdkElicit[Seats]:
        return SdkElicit(f"How many for {film}?", Seats)

    @server.tool()
    async def plain(film: str, ctx: SdkContext[Any, Any], seats: Annotated[Seats, SdkResolve(ask)]) -> int:
        return seats.seats

    tool = server._tool_manager.get_tool("plain")  # pyright: ignore[reportPrivateUsage]
    assert tool is not None
    assert tool.fn is plain
    by_message: Any = {re.compile("^How many"): {"seats": 3}}
    assert (await User(server, by_message, era=era).call("plain", film="Dune")).value == 3


async def test_prompts_and_templates_ask(era: Era) -> None:
    server = MCPServer[Any]("cinema")
    install(server)

    @server.prompt()
    async def review(film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> str:
        return f"{film} with {seats.seats}"

    @server.prompt()
    def plain(film: str) -> str:
        return film

    @server.resource("seats://{film}")
    async def seats_of(film: str, ctx: Context) -> str:
        return await ctx.ask("row", "Which row?", str)

    @server.resource("seats://all")
    def all_seats() -> str:
        return "all"

    user = User(server, {"ask_seats": {"seats": 3}, "row": "middle"}, era=era, allow_unused=True)
    prompts: list[Any] = [(await user.get_prompt(name, film="Dune")).result for name in ("review", "plain")]
    read: list[Any] = [(await user.read_resource(f"seats://{name}")).result for name in ("dune", "all")]
    assert [prompt.messages[0].content.text for prompt in prompts] == ["Dune with 3", "Dune"]
    assert [result.contents[0].text for result in read] == ["middle", "all"]


@each_class
async def test_crashes_are_masked_and_tool_errors_are_not(make: Any, era: Era) -> None:
    async def fail(ctx: Context) -> str:
        raise ValueError("secret")

    async def tell(ctx: Context, who: str = Depends(lambda: "ada")) -> str:
        raise ToolError(f"no seats for {who}")

    user = User(make(fail, tell), era=era)
    assert (await user.call("fail")).text == "Error executing tool fail"
    assert (await user.call("tell")).text == "Error executing tool tell: no seats for ada"


async def test_own_handler_may_call_bound_tools(era: Era) -> None:
    tools = bind(book)

    async def call_tool(ctx: Any, params: Any) -> Any:
        return await tools(ctx, params)

    server = LowLevelServer[Any]("cinema", on_list_tools=tools.list_tools, on_call_tool=call_tool)
    install(server)
    # Commands know its tools without a call: `roundtrip graph` draws them, and tasks of an earlier process go on.
    installation = attached(server)
    assert installation is not None
    assert list(installation.plans) == ["book"]
    assert (await User(server, ANSWERS, era=era).call("book", film="Dune")).value == BOOKED


async def test_policy_of_sdk_is_taken(era: Era) -> None:
    policy = RequestStateSecurity(keys=[KEYS[0]])
    server = MCPServer[Any]("cinema", request_state_security=policy)
    install(server, request_state_security=policy, seal_keys=KEYS[:1])
    server.tool()(book)
    assert (await User(server, ANSWERS, era=era).call("book", film="Dune")).value == BOOKED


# Mistakes.


async def test_bound_tools_of_server_without_install_fail() -> None:
    tools = bind(book)
    server = LowLevelServer[Any]("cinema", on_list_tools=tools.list_tools, on_call_tool=tools)
    call = await User(server, allow_error=True).call("book", film="Dune")
    assert call.error is not None


def test_install_after_marked_tools_is_rejected() -> None:
    server = MCPServer[Any]("cinema")
    server.tool()(book)
    with pytest.raises(InvalidSignature, match=r"'book' asks with roundtrip.*call install\(\) before"):
        install(server)


def test_wrong_server_or_function_is_rejected() -> None:
    for server in (high_level(), low_level(book)):
        with pytest.raises(ValueError, match="already installed on server 'cinema'"):
            install(server)
    for given, words in (
        (roundtrip.Server("shop"), r"leave install\(\) out"),
        (object(), "must be given an MCPServer"),
    ):
        with pytest.raises(TypeError, match=words):
            install(given)  # type: ignore[arg-type]
    with pytest.raises(InvalidSignature, match="has no URI variables"):
        high_level().resource("seats://all")(book)
    with pytest.raises(TypeError, match="must be given functions"):
        bind()


@pytest.mark.parametrize(("option", "value"), [("enabled", False), ("version", "1")])
def test_option_of_own_server_is_rejected_with_reason(option: str, value: Any) -> None:
    option_of: Any = {option: value}

    def marked(film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> int:
        return seats.seats

    fn: Any = roundtrip.tool(**option_of)(marked)
    for make in (high_level, low_level):
        with pytest.raises(InvalidSignature, match=f"{option}= of roundtrip's @tool needs roundtrip.Server"):
            make(fn)


def test_objects_made_of_asking_functions_are_rejected() -> None:
    """A client could fill their parameters."""
    server = MCPServer("cinema")
    install(server)

    @roundtrip.tool(confirm="Greet {name}?")
    def greet(name: str) -> str:
        return f"Hello, {name}"

    with pytest.raises(InvalidSignature, match="prompt 'greet' asks with roundtrip"):
        server.add_prompt(Prompt.from_function(greet))
    with pytest.raises(InvalidSignature, match="resource 'greet' asks with roundtrip"):
        server.add_resource(FunctionResource(uri="films://greet", name="greet", fn=cast("Any", greet)))
    # Its own object cannot even be made of a parameter with a marker.
    with pytest.raises(InvalidSignature, match=r"Resolve\('ask_seats'\) fills a parameter"):
        server.add_prompt(Prompt.from_function(book))
