"""FastMCP servers whose tools, prompts and resources ask by roundtrip."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from fastmcp import FastMCP
from fastmcp.dependencies import CurrentFastMCP
from fastmcp.dependencies import Depends as FastMcpDepends
from fastmcp.exceptions import ToolError as FastMcpToolError
from fastmcp.server import create_proxy
from fastmcp.server.context import Context as FastMcpContext
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.error_handling import RetryMiddleware
from fastmcp.server.providers import LocalProvider
from fastmcp.server.transforms.search import BM25SearchTransform, RegexSearchTransform
from fastmcp.tools import Tool
from fastmcp.tools import tool as fastmcp_tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver.resolve import Resolve as SdkResolve
from mcp_types import CallToolResult, Implementation

import roundtrip
from roundtrip import Context, Depends, InvalidSignature, Resolve, Server, ToolError
from roundtrip.adapters import fastmcp_names
from roundtrip.fastmcp import install
from roundtrip.install import install as install_in_sdk
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import DECLINE, Era, User
from roundtrip.testing.networks.fleet import KEYS
from tests.interaction.adapters.arrivals import confirmed_plain, server
from tests.interaction.adapters.seats import Seats, ask_seats
from tests.kit.raised import raised
from tests.kit.tables import check_each

pytestmark = pytest.mark.anyio


def cinema(*, keys: Any = KEYS[:1], **options: Any) -> FastMCP[Any]:
    mcp = FastMCP[Any]("cinema")
    install(mcp, keys=keys, **options)
    return mcp


def booking(*, keys: Any = KEYS[:1], **options: Any) -> FastMCP[Any]:
    mcp = cinema(keys=keys, **options)

    @mcp.tool
    async def book(film: str, ctx: Context, seats: Annotated[Seats, Resolve(ask_seats)]) -> dict[str, Any]:
        """Book seats."""
        row = await ctx.ask("row", "Which row?", str)
        return {"film": film, "seats": seats.seats, "row": row}

    return mcp


ANSWERS = {"ask_seats": {"seats": 3}, "row": "middle"}
BOOKED = {"film": "Dune", "seats": 3, "row": "middle"}


@pytest.mark.roundtrip(eras="both", hostile=True)
async def test_tool_asks_on_both_eras_and_hostile_networks() -> None:
    call = await User(booking, ANSWERS).call("book", film="Dune")
    assert call.value == BOOKED
    assert [question.name for question in call.questions] == ["ask_seats", "row"]


async def test_client_sees_own_parameters_and_tools_without_markers_stay() -> None:
    mcp = booking()

    def add(a: int, b: int = 1) -> int:
        return a + b

    mcp.tool(add)
    book, adds = await mcp.list_tools()
    assert (list(book.parameters["properties"]), book.description) == (["film"], "Book seats.")
    assert book.output_schema is not None
    assert getattr(adds, "fn") is add  # noqa: B009 - FastMCP's tools are of several classes


async def test_values_of_both_libraries_meet_in_one_tool(era: Era) -> None:
    mcp = cinema()
    seen: list[Any] = []

    def discount() -> int:
        return 2

    def account() -> str:
        return "ada"

    @mcp.tool
    def pay(
        film: str,
        fastmcp_context: FastMcpContext,
        seats: Annotated[Seats, Resolve(ask_seats)],
        server: FastMCP[Any] = CurrentFastMCP(),  # noqa: B008 - as FastMCP's users write it
        off: int = FastMcpDepends(discount),
        who: str = Depends(account),
    ) -> str:
        seen.extend([type(fastmcp_context), server is mcp])
        return f"{who} pays for {seats.seats - off}"

    call = await User(mcp, {"ask_seats": {"seats": 3}}, era=era).call("pay", film="Dune")
    assert call.text == "ada pays for 1"
    assert seen == [FastMcpContext, True]


@pytest.mark.parametrize("own", [FastMcpContext, SdkContext])
async def test_asking_by_context_of_host_names_the_import(own: type[Any], era: Era) -> None:
    mcp: Any = cinema() if own is FastMcpContext else MCPServer("cinema")
    if own is SdkContext:
        install_in_sdk(mcp, keys=KEYS[:1])

    async def plain(ctx: Any) -> str:
        return f"{type(ctx) is own}"

    async def asks(ctx: Any, film: str = "Dune") -> str:
        return str(await ctx.ask("row", f"Which row for {film}?", str))

    def confirmed(ctx: Any) -> Any:
        return asks(ctx)

    for fn in (plain, asks, confirmed):
        fn.__annotations__["ctx"] = own
        mcp.tool()(roundtrip.tool(confirm="Sure?")(fn) if fn is confirmed else fn)
    mcp.resource("row://{film}")(asks)
    user = User(mcp, {"confirm:confirmed": {}, "row": "back"}, era=era, allow_unused=True, allow_error=True)
    advice = f"ctx.ask must be used on roundtrip's Context, got {own.__module__}.Context; annotate"
    assert advice in (await user.call("asks")).text
    assert advice in str((await user.read_resource("row://Dune")).error)
    # The SDK's is the class above roundtrip's, so a function with an option of roundtrip's has the latter.
    told = (await user.call("confirmed")).text
    assert advice in told if own is FastMcpContext else told == "back"
    assert (await user.call("plain")).text == "True"


@pytest.mark.roundtrip(eras="retry", hostile=True)
async def test_body_runs_once_and_result_is_kept() -> None:
    ran: list[str] = []
    ledger = MemoryLedger()

    def make(keys: Any) -> FastMCP[Any]:
        mcp = cinema(keys=keys, ledger=ledger)

        @mcp.tool
        @roundtrip.tool(exactly_once=True)
        def pay(film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> dict[str, int]:
            ran.append(film)
            return {"paid": seats.seats}

        return mcp

    call = await User(make, {"ask_seats": {"seats": 3}}).call("pay", film="Dune")
    assert call.value == {"paid": 3}
    assert ran == ["Dune"]


async def test_recorded_errors_are_told_again() -> None:
    mcp = cinema(ledger=MemoryLedger())
    ran: list[str] = []

    @mcp.tool
    @roundtrip.tool(exactly_once=True)
    def pay(film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> str:
        ran.append(film)
        raise FastMcpToolError("sold out")

    call = await User(mcp, {"ask_seats": {"seats": 3}}, network="duplicate").call("pay", film="Dune")
    assert (call.is_error, call.text, len(ran)) == (True, "sold out", 1)


async def test_errors_of_authors_keep_their_masks() -> None:
    for mask, text in ((False, "Error calling tool 'fail': secret"), (True, "Error calling tool 'fail'")):
        mcp = FastMCP[Any]("cinema", mask_error_details=mask)
        install(mcp)

        @mcp.tool
        async def fail(ctx: Context) -> str:
            raise ValueError("secret")

        @mcp.tool
        async def tell(ctx: Context) -> str:
            raise ToolError("no seats")

        assert (await User(mcp).call("fail")).text == text
        assert (await User(mcp).call("tell")).text == "no seats"


async def test_timeout_of_own_work_is_protocol_error() -> None:
    mcp = cinema()

    @mcp.tool
    @roundtrip.tool(timeout=0.05)
    async def wait(ctx: Context) -> str:
        await anyio.sleep_forever()
        return "late"

    call = await User(mcp, allow_error=True).call("wait")
    assert call.error is not None
    assert call.error.error.data == {"reason": "tool_timeout", "tool": "wait", "timeout": 0.05}


@pytest.mark.parametrize("namespace", ["", "shop"])
@pytest.mark.roundtrip(eras="retry", hostile=True)
async def test_mounted_tool_asks_by_keys_of_parent(namespace: str) -> None:
    def make(keys: Any) -> FastMCP[Any]:
        parent = FastMCP[Any]("parent")
        install(parent, keys=keys)
        # The child's own key would be another one in each instance.
        parent.mount(booking(keys=None), namespace=namespace or None)
        return parent

    call = await User(make, ANSWERS).call("shop_book" if namespace else "book", film="Dune")
    assert call.value == BOOKED


async def test_child_of_parent_without_install_says_so(era: Era) -> None:
    parent = FastMCP[Any]("parent")
    parent.mount(booking())
    call = await User(parent, era=era).call("book", film="Dune")
    assert call.is_error
    assert "call install() of roundtrip.fastmcp on the server that clients connect to" in call.text


async def test_proxied_tool_asks(era: Era) -> None:
    proxy = create_proxy(booking(), name="proxy")
    by_message: Any = {re.compile("^How many"): {"seats": 3}, re.compile("^Which row"): "middle"}
    call = await User(proxy, by_message, era=era).call("book", film="Dune")
    assert call.value == BOOKED


@pytest.mark.parametrize(
    ("search", "place"),
    [
        (BM25SearchTransform, "beside"),
        (RegexSearchTransform, "in a mounted server"),
        (BM25SearchTransform, "over a mounted server"),
    ],
)
async def test_tool_that_a_search_has_found_asks(era: Era, search: Any, place: str) -> None:
    found = booking()
    mcp, name, prefix = found, "book", ""
    if place != "beside":
        mcp, name = cinema(), "book"
        mcp.mount(found, namespace="below")
        prefix, name = ("below_", "book") if place == "in a mounted server" else ("", "below_book")
    (mcp if place == "over a mounted server" else found).add_transform(search())
    call = await User(mcp, ANSWERS, era=era).call(f"{prefix}call_tool", name=name, arguments={"film": "Dune"})
    assert call.value == BOOKED


async def test_tool_called_by_tool_has_call_of_its_own(era: Era) -> None:
    mcp = booking()

    @mcp.tool
    async def outer(ctx: FastMcpContext) -> str:
        inner = await mcp.call_tool("book", {"film": "Dune"})
        return type(inner).__name__

    call = await User(mcp, ANSWERS, era=era, allow_unused=True).call("outer")
    if era is Era.LIVE:
        assert call.text == ToolResult.__name__
    else:
        # Its answers would come with another call's request.
        assert call.text == InputRequiredToolResult.__name__


async def test_middleware_tags_and_visibility_keep_working(era: Era) -> None:
    mcp = cinema()
    seen: list[str] = []

    class Watch(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            result = await call_next(context)
            seen.append(type(result).__name__)
            return result

    mcp.add_middleware(Watch())

    @mcp.tool(tags={"paid"}, title="Pay here")
    async def pay(film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> int:
        return seats.seats

    call = await User(mcp, {"ask_seats": {"seats": 3}}, era=era).call("pay", film="Dune")
    assert call.value == 3
    assert seen[-1] == "ToolResult"
    assert ("InputRequiredToolResult" in seen) is (era is Era.RETRY)
    assert (await mcp.list_tools())[0].title == "Pay here"
    mcp.disable(tags={"paid"})
    assert await mcp.list_tools() == []
    assert (await User(mcp, era=era, allow_error=True).call("pay", film="Dune")).is_error


async def test_prompts_and_resources_ask(era: Era) -> None:
    mcp = cinema()

    @mcp.prompt
    async def review(film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> str:
        return f"{film} with {seats.seats}"

    @mcp.resource("seats://{film}")
    async def seats_of(film: str, ctx: Context) -> str:
        return await ctx.ask("row", "Which row?", str)

    @mcp.resource("seats://now")
    async def now(ctx: Context) -> str:
        return await ctx.ask("row", "Which row?", str)

    got = await User(mcp, {"ask_seats": {"seats": 3}}, era=era).get_prompt("review", film="Dune")
    assert got.result.messages[0].content.text == "Dune with 3"  # type: ignore[union-attr]
    for uri in ("seats://dune", "seats://now"):
        read = await User(mcp, {"row": "middle"}, era=era).read_resource(uri)
        assert read.result.contents[0].text == "middle"  # type: ignore[union-attr]
    declined = await User(mcp, {"ask_seats": DECLINE}, era=era, allow_error=True).get_prompt("review", film="Dune")
    assert declined.error is not None
    assert "The user declined" in declined.error.error.message


async def test_trace_has_arguments_of_client_alone(tmp_path: Path, era: Era) -> None:
    path = tmp_path / "calls.jsonl"
    mcp = cinema(trace=roundtrip.Recorder(path, reveal="all"))

    def secret() -> str:
        return "hunter2"

    @mcp.tool
    async def pay(film: str, ctx: Context, password: str = FastMcpDepends(secret)) -> str:
        return await ctx.ask("row", "Which row?", str)

    await User(mcp, {"row": "middle"}, era=era).call("pay", film="Dune")
    told = path.read_text()
    assert "Dune" in told
    assert "hunter2" not in told


async def test_author_calls_tool_outside_of_request() -> None:
    mcp = cinema()

    @mcp.tool
    async def count(ctx: Context, who: str = Depends(lambda: "ada")) -> str:
        return who

    result = await mcp.call_tool("count", {})
    assert result.content[0].text == "ada"  # type: ignore[union-attr]


async def test_functions_registered_in_any_way_ask(era: Era) -> None:
    before, after = LocalProvider(), LocalProvider()
    mcp = FastMCP[Any]("cinema", providers=[before])
    install(mcp)
    mcp.add_provider(after)
    for provider, name in ((before, "first"), (after, "second")):

        @provider.tool(name=name)
        async def pay(film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> int:
            return seats.seats

    class Desk:
        @fastmcp_tool(name="method")
        async def pay(self, film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> int:
            return seats.seats

    mcp.add_tool(Desk().pay)
    paying = await mcp.get_tool("first")
    assert paying is not None
    mcp.add_tool(Tool.from_tool(paying, name="transformed"))
    for name in ("first", "second", "method", "transformed"):
        assert (await User(mcp, {"ask_seats": {"seats": 3}}, era=era).call(name, film="Dune")).value == 3, name


# Mistakes.


def asking(film: str, seats: Annotated[Seats, SdkResolve(ask_seats)]) -> int:
    return seats.seats


def discounted(film: str) -> str:
    return film


def rows(ctx: Context) -> Any:
    yield 1


MISTAKES: list[tuple[Callable[[FastMCP[Any]], object], type[Exception], str]] = [
    (install, ValueError, "already installed on server 'cinema'"),
    (lambda _: install(roundtrip.Server("shop")), TypeError, "must be given a FastMCP server"),  # type: ignore[arg-type]
    (lambda _: install_in_sdk(FastMCP("x")), TypeError, r"use install\(\) of roundtrip.fastmcp"),  # type: ignore[arg-type]
    (lambda _: install(FastMCP(), keys=KEYS[:1]), ValueError, "must have a name"),
    (lambda mcp: mcp.add_tool(Tool.from_function(asking)), InvalidSignature, "not an object made from it"),
    (
        lambda mcp: mcp.tool(asking, task=True),
        InvalidSignature,
        r"no client to ask; write @mcp\.tool\(task=False\).*docs/fleet\.md",
    ),
    (
        lambda mcp: mcp.prompt(roundtrip.tool(confirm="Sure?")(discounted)),
        InvalidSignature,
        "confirm= of roundtrip's @tool is for tools",
    ),
    (lambda mcp: mcp.tool(rows), InvalidSignature, "is a generator"),
]


def test_mistakes_are_rejected_with_reasons() -> None:
    def check(mistake: Callable[[FastMCP[Any]], object], kind: type[Exception], told: str) -> None:
        error = raised(mistake, cinema())
        assert type(error) is kind
        assert re.search(told, str(error)), error

    check_each(MISTAKES, check)
    install(FastMCP[Any](), keys=KEYS[:1], audience="cinema")
    late = FastMCP[Any]("cinema")
    late.tool(asking)
    with pytest.raises(InvalidSignature, match=r"tool 'asking' asks with roundtrip.*call install\(\) before"):
        install(late)


def test_context_of_fastmcp_is_rejected_where_nothing_fills_it() -> None:
    async def book(film: str, ctx: FastMcpContext) -> str:
        return film

    with pytest.raises(InvalidSignature, match=r"FastMCP's Context as 'ctx'.*import Context from roundtrip"):
        Server("cinema").tool()(book)


OPTIONS: dict[str, Any] = {
    "name": "x",
    "description": "x",
    "annotations": {},
    "icons": [],
    "meta": {},
    "output_schema": {"type": "object"},
    "structured_output": False,
}
"""The options that have no row in the table of `docs/moving.md#fastmcp`."""


def test_option_of_other_library_is_rejected_with_reason() -> None:
    mcp = cinema()
    for option, value in OPTIONS.items():

        def pay(film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> int:
            return seats.seats

        option_of: Any = {option: value}
        fn: Any = roundtrip.tool(**option_of)(pay)
        with pytest.raises(InvalidSignature, match=f"{option}= of roundtrip's @tool belongs"):
            mcp.tool(fn, name="pay")


@pytest.mark.parametrize(
    ("order", "depth", "namespace"), [("install", 1, ""), ("mount", 2, "below"), ("install", 2, "")]
)
def test_mounted_server_without_install_is_rejected(order: str, depth: int, namespace: str) -> None:
    """Its confirmations would do nothing."""
    parent, child = FastMCP[Any]("parent"), server(confirmed_plain)
    for _ in range(1, depth):
        between = FastMCP[Any]("between")
        between.mount(child, namespace=namespace)
        child = between
    steps = [lambda: install(parent), lambda: parent.mount(child, namespace=namespace)]
    first, second = steps if order == "install" else reversed(steps)
    first()
    with pytest.raises(
        InvalidSignature, match=r"tool 't' asks with roundtrip.*on the server 'other', before registering"
    ):
        second()


async def test_attempt_that_succeeds_after_a_failure_counts(era: Era) -> None:
    mcp, tries = cinema(), itertools.count(1)
    mcp.add_middleware(RetryMiddleware(max_retries=2, base_delay=0.01, retry_exceptions=(Exception,)))

    @mcp.tool
    @roundtrip.tool(timeout=1.0)
    async def pay(film: str) -> str:
        if next(tries) == 1:
            await anyio.sleep_forever()
        return f"paid for {film}"

    call = await User(mcp, era=era).call("pay", film="Dune")
    assert call.error is None
    assert call.text == "paid for Dune"


MEDIA: Any = {
    "image": lambda: roundtrip.Image(data=b"x", format="png"),
    "audio": lambda: roundtrip.Audio(data=b"x", format="wav"),
    "file": lambda: roundtrip.File(data=b"x", format="pdf", name="a.pdf"),
    "list": lambda: ["a seat", roundtrip.Image(data=b"x", format="png")],
    "whole": lambda: CallToolResult(content=[], structured_content={"row": 3}),
    "result": lambda: roundtrip.ToolResult("a seat", structured_content={"row": 3}, meta={"a": 1}),
}


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("kind", MEDIA)
async def test_media_and_results_are_sent_as_by_roundtrip_s_server(kind: str, exactly_once: bool) -> None:
    @roundtrip.tool(exactly_once=exactly_once)
    async def show(ctx: Context) -> Any:
        await ctx.ask("sure", "Sure?", bool)
        return MEDIA[kind]()

    ours, mcp = roundtrip.Server[Any]("shop", ledger=MemoryLedger()), FastMCP[Any]("shop")
    install(mcp, ledger=MemoryLedger())
    ours.tool(show)
    mcp.tool(show)
    shown = [(await User(server, {"sure": True}).call("show")).result for server in (ours, mcp)]
    (own, hosted), meta = shown, {"image": None, "result": {"a": 1}}.get(kind)
    assert own is not None
    assert hosted is not None
    assert hosted.model_dump(exclude={"meta"}) == own.model_dump(exclude={"meta"})
    assert meta is None or (hosted.meta or {}).get("a") == 1


@pytest.mark.parametrize("is_set_on_parent", [True, False])
async def test_parent_decides_about_rounds_without_questions(is_set_on_parent: bool) -> None:
    child, parent = FastMCP("child"), FastMCP("parent")
    install(child, keys=KEYS, no_empty_rounds=() if is_set_on_parent else ["one-leg"])
    install(parent, keys=KEYS, no_empty_rounds=["one-leg"] if is_set_on_parent else ())

    @child.tool
    @roundtrip.tool(exactly_once=True, uncovered="round")
    async def pay() -> str:
        return "paid"

    parent.mount(child)
    client = Client(fastmcp_names.low_level_of(parent), client_info=Implementation(name="one-leg", version="1"))
    async with client:
        result = await client.session.call_tool("pay", {}, allow_input_required=True)
    assert isinstance(result, CallToolResult) is is_set_on_parent
