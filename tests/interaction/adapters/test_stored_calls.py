"""Question pages, links, models that answer, and approvals on FastMCP and on the SDK's own class."""

from collections.abc import Callable
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from fastmcp import FastMCP
from fastmcp.dependencies import CurrentHeaders
from fastmcp.server.middleware import Middleware
from fastmcp.server.transforms import Namespace
from fastmcp.server.transforms.search import BM25SearchTransform
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError

import roundtrip
from roundtrip import Approvals, Approve, Context, Elicit, InvalidSignature, Pages, Resolve
from roundtrip.fastmcp import install as install_in_fastmcp
from roundtrip.install import install
from roundtrip.ledger import MemoryLedger
from roundtrip.ledger.contract import LedgerDown
from tests.kit.hosts import hosted
from tests.kit.page_users import (
    BASE,
    KEY,
    Browser,
    client_of,
    handle_in,
    link_in,
    reader,
    text_of,
    user_of,
)
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

CLASSES = ("fastmcp", "mcpserver")
MODES = ("2026-07-28", "legacy")
each_class = pytest.mark.parametrize("kind", CLASSES)
each_mode = pytest.mark.parametrize("mode", MODES)
each_class_and_mode = pytest.mark.parametrize(("kind", "mode"), list(zip(CLASSES, MODES, strict=True)))
"""Each class in another mode: where both modes take the same way through a class."""
ANSWERS = {"Which seat": "3", "How many": "2", "Refund": ""}


def options_of(**options: Any) -> dict[str, Any]:
    pages = Pages(base_url=BASE, authenticate=reader, wait=options.pop("wait", 5))
    return {"keys": [KEY], "principal": user_of, "pages": pages, **options}


def made(kind: str, **options: Any) -> tuple[Any, Callable[..., Any]]:
    """Return a server of a class with pages, and its decorator of tools."""
    given = options_of(**options)
    if kind == "mcpserver":
        sdk = MCPServer[Any]("shop")
        install(sdk, **given)
        return sdk, sdk.tool()
    mcp = FastMCP[Any]("shop")
    install_in_fastmcp(mcp, **given)
    return mcp, mcp.tool


def app_of(server: Any) -> Any:
    return server.http_app() if isinstance(server, FastMCP) else server.streamable_http_app()


def which_seat(film: str) -> Elicit[int]:
    return Elicit(f"Which seat for {film}?", int)


class Bookings:
    """A shop that counts its bookings."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.booked: list[str] = []
        self.server, tool = made(kind, **options)

        @tool
        @roundtrip.tool(exactly_once=True)
        async def book(film: str, seat: Annotated[int, Resolve(which_seat)], ctx: Context) -> str:
            """Book a seat."""
            size = await ctx.ask("size", "How many?", int)
            self.booked.append(film)
            return f"{film}, seat {seat}, {size}"

        @tool
        async def plain(film: str) -> dict[str, str]:
            """Ask nothing."""
            return {"film": film}

        del book, plain


class Seen(Middleware):
    """Middleware that notes the calls of tools."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        self.names.append(context.message.name)
        return await call_next(context)


@each_mode
@each_class
async def test_link_leads_to_the_result_on_another_instance(kind: str, mode: str) -> None:
    ledger, seen = MemoryLedger(), Seen()
    first, second = Bookings(kind, ledger=ledger), Bookings(kind, ledger=ledger)
    if kind == "fastmcp":
        first.server.add_middleware(seen)
        second.server.add_middleware(seen)
    async with hosted(app_of(first.server)) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("book", {"film": "Solaris"})
        assert not asked.is_error
    async with hosted(app_of(second.server)) as url, client_of(url, mode=mode) as client:
        browser = Browser(url, "ann")
        assert await browser.answer_all(link_in(asked), ANSWERS) == "Done"
        assert browser.seen == ["Which seat for Solaris?", "How many?"]
        assert await continued(client, asked) == "Solaris, seat 3, 2"
        assert (await client.call_tool("plain", {"film": "Solaris"})).structured_content == {"film": "Solaris"}
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert (first.booked, second.booked) == ([], ["Solaris"])
    # Middleware sees the requests of clients, and no other legs.
    assert seen.names == (["book", "continue_call", "plain"] if kind == "fastmcp" else [])
    shapes = {name: tool.output_schema is not None for name, tool in tools.items() if name != "continue_call"}
    assert shapes == {"book": False, "plain": True}
    hints = tools["continue_call"].annotations
    assert hints is not None
    assert (hints.read_only_hint, hints.destructive_hint) == (False, True)
    assert set(tools["continue_call"].input_schema["properties"]) == {"handle"}


@each_class_and_mode
async def test_other_users_get_neither_page_nor_result(kind: str, mode: str) -> None:
    shop = Bookings(kind, wait=0.2)
    async with hosted(app_of(shop.server)) as url:
        async with client_of(url, mode=mode) as client:
            asked = await client.call_tool("book", {"film": "Solaris"})
        async with client_of(url, "eve", mode=mode) as client:
            stolen = await client.call_tool("continue_call", {"handle": handle_in(asked)})
            invented = await client.call_tool("continue_call", {"handle": "a.b"})
        assert text_of(stolen) == text_of(invented) == "There is no such call, or it has expired. Start the call again."
        assert (await Browser(url, "eve").open(link_in(asked))).status_code in (403, 404)
    assert shop.booked == []


async def continued(client: Any, asked: Any) -> str:
    """Return the text of the result of a call that waited."""
    return text_of(await client.call_tool("continue_call", {"handle": handle_in(asked)}))


async def decide(url: str, user: str, decision: str = "approve", reason: str = "") -> str:
    """Decide the only call that waits for a user, and return its question."""
    async with httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {user}"}, timeout=10) as http:
        (waiting,) = (await http.get("/approvals/api")).json()["approvals"]
        path = f"/approvals/api/{waiting['id']}"
        made = await http.post(path, json={"decision": decision, "reason": reason}, headers={"origin": BASE})
        assert made.status_code == 200, made.text
        return str(waiting["message"])


async def person(request: Any) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme == "Bearer" else request.cookies.get("user")


@each_class_and_mode
async def test_call_waits_for_the_approval_of_another_person(kind: str, mode: str) -> None:
    refunded: list[str] = []
    groups = {"fred": ["finance"], "ann": ["finance"]}
    pages = Pages(base_url=BASE, authenticate=person, wait=0.2)
    server, tool = made(kind, pages=pages, approvals=Approvals(groups=groups))

    @tool
    @roundtrip.tool(confirm=Approve("Refund all of {order}?", by="finance"), exactly_once=True)
    async def refund(order: str) -> str:
        """Refund an order."""
        refunded.append(order)
        return f"refunded {order}"

    async with hosted(app_of(server)) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("refund", {"order": "A7"})
        assert "finance" in text_of(asked)
        # The caller is of the group, and must not decide.
        own = httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer ann"})
        async with own:
            assert (await own.get("/approvals/api")).json()["approvals"] == []
        assert refunded == []
        assert "A7" in await decide(url, "fred")
        with anyio.fail_after(WAIT):
            while "refunded" not in (text := await continued(client, asked)):
                await anyio.lowlevel.checkpoint()
    assert text == "refunded A7"
    assert refunded == ["A7"]
    del refund


@each_class_and_mode
async def test_failure_behind_a_page_is_that_of_the_tool(
    kind: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, tool = made(kind)

    @tool
    async def fail(ctx: Context) -> str:
        """Fail after two questions."""
        first = await ctx.ask("size", "How many?", int)
        second = await ctx.ask("seat", "Which seat?", int)
        raise roundtrip.ToolError(f"{first} is too many for {second}")

    async with hosted(app_of(server)) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("fail", {})
        await Browser(url, "ann").answer_all(link_in(asked), ANSWERS)
        result = await client.call_tool("continue_call", {"handle": handle_in(asked)})
    assert result.is_error
    assert text_of(result).endswith("2 is too many for 3")
    # A leg that asks is no failure.
    assert len([record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]) <= 1
    del fail


@pytest.mark.parametrize(
    ("mode", "options"), [(MODES[0], {"keys": [KEY]}), (MODES[1], options_of())], ids=["without pages", "with pages"]
)
async def test_mounted_and_renamed_tool_waits_behind_a_page(mode: str, options: dict[str, Any]) -> None:
    child = FastMCP[Any]("child")
    install_in_fastmcp(child, **options)

    @child.tool
    async def book(film: str, ctx: Context) -> str:
        """Book a seat."""
        return f"{film}, {await ctx.ask('size', 'How many?', int)} of {await ctx.ask('seat', 'Which seat?', int)}"

    parent, _ = made("fastmcp")
    parent.mount(child, namespace="cinema")
    parent.add_transform(Namespace("all"))
    async with hosted(app_of(parent)) as url, client_of(url, mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "all_cinema_book" in names
        asked = await client.call_tool("all_cinema_book", {"film": "Solaris"})
        await Browser(url, "ann").answer_all(link_in(asked), ANSWERS)
        (name,) = [name for name in names if name.endswith("continue_call")]
        result = await client.call_tool(name, {"handle": handle_in(asked)})
    assert text_of(result) == "Solaris, 2 of 3"
    del book


async def test_leg_through_a_search_waits_for_its_own_client() -> None:
    """All calls through a search have one name, and only some tools need the request of their client."""
    mcp, _ = made("fastmcp")

    @mcp.tool
    async def pay(ctx: Context, headers: dict[str, str] = CurrentHeaders()) -> str:  # noqa: B008 - FastMCP's way
        """Pay for seats."""
        return f"paid {await ctx.ask('size', 'How many?', int)} as {headers.get('x-user')}"

    @mcp.tool
    async def buy(ctx: Context) -> str:
        """Buy a film."""
        return f"bought {await ctx.ask('size', 'How many films?', int)}"

    mcp.add_transform(BM25SearchTransform())
    async with hosted(app_of(mcp)) as url, client_of(url) as client:
        asked = await client.call_tool("call_tool", {"name": "pay", "arguments": {}})
        async with client_of(url, "bob") as other:
            await other.call_tool("call_tool", {"name": "buy", "arguments": {}})
        browser, link = Browser(url, "ann"), link_in(asked)
        assert (await browser.send(link, (await browser.open(link)).text, "3")).status_code == 303
        assert await continued(client, asked) == "paid 3 as ann"
        arguments = {"name": "continue_call", "arguments": {"handle": handle_in(asked)}}
        assert text_of(await client.call_tool("call_tool", arguments)) == "paid 3 as ann"
    del pay, buy


@each_class
def test_approvals_need_known_callers_and_an_inbox(kind: str) -> None:
    pages = Pages(base_url=BASE, authenticate=person)
    with pytest.raises(ValueError, match="approvals= needs a server that knows its callers"):
        made(kind, principal=None, pages=pages, approvals=Approvals(groups={"fred": ["finance"]}))
    _, tool = made(kind)
    with pytest.raises(InvalidSignature, match=r"needs a server with approvals=Approvals\(groups=...\)"):
        tool(roundtrip.tool(confirm=Approve("Refund?", by="finance"))(plain_refund))


async def plain_refund(order: str) -> str:
    return order


async def test_call_of_a_disabled_tool_is_unknown_to_its_client() -> None:
    shop = Bookings("fastmcp", wait=0.2)
    async with hosted(app_of(shop.server)) as url, client_of(url) as client:
        asked = await client.call_tool("book", {"film": "Solaris"})
        shop.server.disable(names={"book"})
        assert await continued(client, asked) == "Unknown tool: book"
        await Browser(url, "ann").answer_all(link_in(asked), ANSWERS)
    assert shop.booked == []


@each_class_and_mode
async def test_store_that_is_down_is_a_protocol_error(kind: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = MemoryLedger()
    shop = Bookings(kind, ledger=ledger)

    async def down(*_: Any, **__: Any) -> Any:
        raise LedgerDown("the store is down")

    monkeypatch.setattr(type(ledger.tasks), "save", down)
    async with hosted(app_of(shop.server)) as url, client_of(url, mode=mode) as client:
        with anyio.fail_after(WAIT):
            failure = await failure_of(client, "book", {"film": "Solaris"})
    assert "Calls cannot be stored now; try again later" in failure


async def failure_of(client: Any, tool: str, arguments: dict[str, Any]) -> str:
    """Return the text of a protocol error, or of the result that older clients get in its place."""
    try:
        result = await client.call_tool(tool, arguments)
    except MCPError as error:
        return str(error)
    assert result.is_error
    return text_of(result)


async def test_only_versions_with_auth_wait_for_their_client() -> None:
    mcp, _ = made("fastmcp")
    admitted: list[str] = []

    def admits(context: Any) -> bool:
        admitted.append(context.component.name)
        return True

    @mcp.tool(version="1")
    async def pay(ctx: Context) -> str:
        """Pay for seats."""
        return f"paid {await ctx.ask('size', 'How many?', int)}"

    @mcp.tool(name="pay", version="2", auth=admits)
    async def checked_pay(ctx: Context) -> str:
        """Pay for seats, by those who may."""
        return f"paid by one who may: {await ctx.ask('size', 'How many?', int)}"

    async with hosted(app_of(mcp)) as url, client_of(url) as client:
        browser = Browser(url, "ann")
        asked = [await client.call_tool("pay", {}, meta={"fastmcp": {"version": each}}) for each in ("1", "2")]
        # Answering the first one ends its call, though a client has called the other version since.
        link = link_in(asked[0])
        assert (await browser.send(link, (await browser.open(link)).text, "3")).status_code == 303
        assert await browser.answer_all(link, {}) == "Done"
        link = link_in(asked[1])
        assert (await browser.send(link, (await browser.open(link)).text, "4")).status_code == 303
        before = len(admitted)
        assert [await continued(client, each) for each in asked] == ["paid 3", "paid by one who may: 4"]
    assert len(admitted) > before
    del pay, checked_pay
