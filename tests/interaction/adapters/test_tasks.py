"""Tasks on FastMCP and on the SDK's own class: what differs from `roundtrip.Server`."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import anyio
import httpx
import pytest
from fastmcp import Context as FastMcpContext
from fastmcp import FastMCP
from fastmcp.dependencies import CurrentHeaders
from fastmcp.dependencies import Depends as FastMcpDepends
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import AuthContext
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.caching import ResponseCachingMiddleware
from fastmcp.server.transforms import Namespace, ToolTransform
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools import Tool
from fastmcp.tools.tool_transform import ArgTransformConfig, ToolTransformConfig, forward
from fastmcp_tasks import TasksExtension
from mcp.server import MCPServer
from mcp_types import CallToolResult

import roundtrip
from roundtrip import Approvals, Approve, Context, DocketEngine, Elicit, InvalidSignature, Pages, Resolve, after
from roundtrip.adapters.finding import attached
from roundtrip.fastmcp import install as install_in_fastmcp
from roundtrip.install import install
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.testing import ACCEPT, DECLINE, Era, User
from tests.kit.page_users import BASE, KEY, Browser, handle_in, link_in, reader, user_of
from tests.kit.peer import EXTENSION, Peer, peers, text_of
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio

each_class = pytest.mark.parametrize("kind", ["fastmcp", "mcpserver"])


def made(kind: str = "fastmcp", **options: Any) -> tuple[Any, Callable[..., Any]]:
    """Return a server of a class, and its decorator of tools."""
    given: dict[str, Any] = {"keys": [KEY], "ledger": MemoryLedger(), **options}
    if kind == "mcpserver":
        sdk = MCPServer[Any]("shop")
        install(sdk, **given)
        return sdk, sdk.tool()
    mcp = FastMCP[Any]("shop")
    install_in_fastmcp(mcp, **given)
    return mcp, mcp.tool


def paged(**options: Any) -> dict[str, Any]:
    return {"principal": user_of, "pages": Pages(base_url=BASE, authenticate=reader, wait=5), **options}


@asynccontextmanager
async def peer_of(server: Any, **headers: str) -> AsyncGenerator[Peer]:
    async with peers(server) as (peer,):
        yield Peer(peer.http, peer.url, headers=headers)


@roundtrip.tool(task=True)
async def order(title: str, ctx: Context) -> dict[str, Any]:
    """Order a title."""
    return {"title": title, "copies": await ctx.ask("copies", "How many?", int)}


async def ordered(peer: Peer, tool: str = "order", **arguments: Any) -> dict[str, Any]:
    """Play a task of `order` to its end, and return its structured result."""
    handle = await peer.call(tool, **(arguments or {"title": "Emma"}))
    assert handle["resultType"] == "task", handle
    await peer.asked(handle["taskId"], "copies")
    await peer.answer(handle["taskId"], copies=2)
    task = await peer.until(handle["taskId"], "completed")
    assert not task["result"]["isError"], task
    return task["result"]["structuredContent"]


ORDERED = {"title": "Emma", "copies": 2}


@each_class
@pytest.mark.parametrize("era", [Era.TASK, Era.RETRY, Era.LIVE])
async def test_one_function_has_all_three_lives(kind: str, era: Era) -> None:
    server, tool = made(kind)
    tool(order)
    assert (await User(server, {"copies": 2}, era=era).call("order", title="Emma")).value == ORDERED


@each_class
@pytest.mark.parametrize("era", [Era.TASK, Era.RETRY, Era.LIVE])
@pytest.mark.parametrize("answer", [ACCEPT, DECLINE])
async def test_task_begins_after_consent(kind: str, era: Era, answer: Any) -> None:
    server, tool = made(kind, consent="destructive")
    tool(order)
    user = User(server, {"confirm:order": answer, "copies": 2}, era=era, allow_unused=True)
    call = await user.call("order", title="Emma")
    assert call.asked[0] == 'Allow "order" to run?\n\ntitle: "Emma"'
    assert (call.asked[1:] == ["How many?"]) == (answer is ACCEPT)
    result: Any = call.result
    assert (result.structured_content == ORDERED) == (answer is ACCEPT)


def which_seat() -> Elicit[int]:
    return Elicit("Which seat?", int)


@each_class
async def test_confirmed_task_runs_once_behind_its_rounds(kind: str) -> None:
    server, tool = made(kind)
    sold: list[int] = []

    @tool
    @roundtrip.tool(task="required", confirm="Sell {film}?", exactly_once=True)
    async def sell(film: str, seat: Annotated[int, Resolve(which_seat)], ctx: Context) -> dict[str, Any]:
        sold.append(seat)
        return {"film": film, "seat": seat, "task": ctx.task.id}

    async with peer_of(server) as peer:
        request: dict[str, Any] = {"name": "sell", "arguments": {"film": "Solaris"}}
        reply = await peer.ask("tools/call", **request)
        for content in ({}, {"value": 7}):
            (name,) = reply["inputRequests"]
            answers = {name: {"action": "accept", "content": content}}
            last = {**request, "requestState": reply["requestState"], "inputResponses": answers}
            reply = await peer.ask("tools/call", **last)
        again = await peer.ask("tools/call", **last)
        assert reply["resultType"] == again["resultType"] == "task"
        assert reply["taskId"] == again["taskId"]
        ended = await peer.until(reply["taskId"], "completed")
        assert ended["result"]["structuredContent"] == {"film": "Solaris", "seat": 7, "task": reply["taskId"]}
        peer.declares = False
        assert (await peer.send("tools/call", **request))["error"]["code"] == -32021
    assert sold == [7]
    del sell


@each_class
async def test_task_of_a_client_that_cannot_ask_ends_with_a_link(kind: str) -> None:
    server, tool = made(kind, **paged())
    tool(order)
    async with peers(server) as (found,):
        peer = Peer(found.http, found.url, headers={"x-user": "ann"}, elicitation={})
        task = await peer.until((await peer.call("order", title="Emma"))["taskId"], "completed")
        link = CallToolResult.model_validate(task["result"])
        assert (
            await Browser(peer.url.removesuffix("/mcp"), "ann").answer_all(link_in(link), {"How many": "2"}) == "Done"
        )
        result = await peer.call("continue_call", handle=handle_in(link))
    assert result["structuredContent"] == ORDERED


@each_class
async def test_task_waits_for_the_approval_of_another_person(kind: str) -> None:
    approvals = Approvals(groups={"fred": ["finance"]})
    server, tool = made(kind, **paged(approvals=approvals))

    @tool
    @roundtrip.tool(task="required", confirm=Approve("Refund {order}?", by="finance"))
    async def refund(order: str) -> str:
        return f"refunded {order}"

    async with peer_of(server, **{"x-user": "ann"}) as peer:
        task = (await peer.call("refund", order="A7"))["taskId"]
        assert (await peer.get(task))["status"] == "working"
        inbox = peer.url.removesuffix("/mcp") + "/approvals/api"
        async with httpx.AsyncClient(cookies={"user": "fred"}, headers={"origin": BASE}) as fred:

            async def waiting() -> list[Any]:
                return (await fred.get(inbox)).json()["approvals"]

            await until(waiting)
            (approval,) = await waiting()
            decided = await fred.post(f"{inbox}/{approval['id']}", json={"decision": "approve"})
            assert decided.status_code == 200
        assert text_of(await peer.until(task, "completed")) == "refunded A7"
    del refund


LOGIN = {
    "ann-token": {"client_id": "a", "sub": "ann", "scopes": ["buy"]},
    "bob-token": {"client_id": "b", "sub": "bob"},
}


def is_buyer(context: AuthContext) -> bool:
    return context.token is not None and "buy" in context.token.scopes


async def test_authorization_is_checked_before_the_task_begins() -> None:
    mcp = FastMCP[Any]("shop", auth=StaticTokenVerifier(tokens=LOGIN))
    install_in_fastmcp(mcp, keys=[KEY])
    mcp.tool(auth=[is_buyer])(order)

    @mcp.tool(auth=is_buyer)
    def price() -> int:
        return 7

    @mcp.tool(auth=is_buyer)
    @roundtrip.tool(task=True)
    async def call_other(ctx: Context, host: FastMcpContext) -> str:
        """Call a tool that needs a token, which the task does not have."""
        try:
            return str((await host.fastmcp.call_tool("price")).structured_content)
        except Exception as error:  # noqa: BLE001 - its text is compared
            return str(error)

    async with peer_of(mcp, authorization="Bearer ann-token") as ann:
        handle = await ann.call("order", title="Emma")
        bob = Peer(ann.http, ann.url, headers={"authorization": "Bearer bob-token"})
        assert "Unknown tool" in (await bob.call("order", title="Emma"))["content"][0]["text"]
        refused = await bob.send("tasks/get", taskId=handle["taskId"])
        assert refused["error"]["message"] == "Task not found"
        assert await ordered(ann) == ORDERED
        inner = await ann.until((await ann.call("call_other"))["taskId"], "completed")
        assert "Unknown tool: 'price'" in text_of(inner)
    del price, call_other


def discount() -> int:
    return 1


async def test_values_of_fastmcp_are_filled_without_a_request() -> None:
    mcp, tool = made()

    @tool
    @roundtrip.tool(task=True)
    async def pay(
        ctx: Context,
        host: FastMcpContext,
        off: int = FastMcpDepends(discount),
        headers: dict[str, str] = CurrentHeaders(),  # noqa: B008 - FastMCP's way
    ) -> dict[str, Any]:
        await host.report_progress(1, 2)
        size = await ctx.ask("copies", "How many?", int)
        return {"pay": size - off, "server": host.fastmcp.name, "user": headers.get("x-user")}

    async with peer_of(mcp, **{"x-user": "ann"}) as peer:
        task = (await peer.call("pay"))["taskId"]
        await peer.asked(task, "copies")
        await peer.answer(task, copies=3)
        ended = await peer.until(task, "completed")
    assert ended["result"]["structuredContent"] == {"pay": 2, "server": "shop", "user": None}
    del pay


def bare(mcp: FastMCP[Any]) -> FastMCP[Any]:
    """Return a server without `install` that mounts another one."""
    between = FastMCP[Any]("between")
    between.mount(mcp, namespace="inner")
    return between


@pytest.mark.parametrize("place", ["below", "two below", "late"])
async def test_task_of_a_mounted_server_belongs_to_the_outer_one(place: str) -> None:
    child, tool = made(keys=[b"c" * 32])
    parent, _ = made()
    parent.mount(bare(child) if place == "two below" else child, namespace="books")
    if place != "late":
        tool(order)
    parent.add_transform(Namespace("all"))
    name = "all_books_inner_order" if place == "two below" else "all_books_order"
    async with peer_of(parent) as peer:
        if place == "late":
            tool(order)
        else:
            assert EXTENSION in (await peer.ask("server/discover"))["capabilities"]["extensions"]
        assert await ordered(peer, name) == ORDERED
    parts = attached(child)
    assert parts is not None
    assert parts.storage.tasks is not None
    assert await parts.ledger.tasks.list(limit=1) == []  # type: ignore[attr-defined]


async def test_transformed_tools_run_as_tasks() -> None:
    renamed, tool = made()
    tool(order)
    arguments = {"title": ArgTransformConfig(hide=True, default="Emma")}
    renamed.add_transform(ToolTransform({"order": ToolTransformConfig(name="buy", arguments=arguments)}))
    searched, _ = made()
    searched.tool(order, version="2")
    searched.add_transform(BM25SearchTransform())
    async with peers(renamed, searched) as (one, other):
        handle = await one.call("buy")
        await one.asked(handle["taskId"], "copies")
        await one.answer(handle["taskId"], copies=2)
        assert (await one.until(handle["taskId"], "completed"))["result"]["structuredContent"] == ORDERED
        assert await ordered(other, "call_tool", name="order", arguments={"title": "Emma"}) == ORDERED


async def test_function_of_a_transform_runs_in_each_leg() -> None:
    mcp, tool = made()
    tool(order)
    legs: list[str] = []

    async def passing_on(title: str) -> Any:
        legs.append(title)
        return await forward(title=title.upper())

    mcp.add_tool(Tool.from_tool(await mcp.get_tool("order"), name="shout", transform_fn=passing_on))
    async with peer_of(mcp) as peer:
        assert await ordered(peer, "shout", title="Emma") == {"title": "EMMA", "copies": 2}
    assert legs == ["Emma"] * 3


async def test_task_keeps_the_version_with_which_it_began() -> None:
    mcp, _ = made()
    for version in ("1", "2"):

        @mcp.tool(name="order", version=version)
        @roundtrip.tool(task=True)
        async def order_version(ctx: Context, version: str = version) -> dict[str, Any]:
            return {"version": version, "copies": await ctx.ask("copies", "How many?", int)}

        del order_version
    async with peer_of(mcp) as peer:
        for version in ("1", "2"):
            params: dict[str, Any] = {"name": "order", "arguments": {}, "_meta": {"fastmcp": {"version": version}}}
            task = await versioned(peer, params)
            assert task["result"]["structuredContent"] == {"version": version, "copies": 2}


async def versioned(peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
    request = peer._request("tools/call", None, {key: params[key] for key in ("name", "arguments")})  # pyright: ignore
    request["json"]["params"]["_meta"].update(params["_meta"])
    handle = (await peer.http.post(peer.url, **request)).json()["result"]
    await peer.asked(handle["taskId"], "copies")
    await peer.answer(handle["taskId"], copies=2)
    return await peer.until(handle["taskId"], "completed")


async def test_tasks_of_both_libraries_live_on_one_server() -> None:
    mcp, tool = made()
    mcp.add_extension(TasksExtension(url="memory://"))
    tool(order)

    @mcp.tool(task=True)
    async def crunch(number: int) -> int:
        return number + 1

    async with peer_of(mcp) as peer:
        assert await ordered(peer) == ORDERED
        theirs = (await peer.call("crunch", number=1))["taskId"]
        ended = await peer.until(theirs, "completed")
        assert ended["result"]["structuredContent"] == {"result": 2}
        ours = (await peer.call("order", title="Emma"))["taskId"]
        for task in (theirs, ours):
            await peer.ask("tasks/cancel", taskId=task)
        assert (await peer.get(ours))["status"] == "cancelled"
        unknown = [await peer.send("tasks/get", taskId=each) for each in ("x" * 43, "x" * 12 + "." + "y" * 22)]
        assert [reply["error"]["code"] for reply in unknown] == [-32602, -32602]
        async with peer.listen(ours, theirs) as stream:
            assert stream.acknowledged["notifications"]["taskIds"] == [ours]
    del crunch


class Seen(Middleware):
    def __init__(self) -> None:
        self.results: list[Any] = []

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        self.results.append(await call_next(context))
        return self.results[-1]


class Replacing(Middleware):
    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        await call_next(context)
        raise ToolError("not for you")


async def test_middleware_gets_no_result_that_it_could_cache() -> None:
    mcp, tool = made()
    tool(order)
    seen = Seen()
    mcp.add_middleware(seen)
    mcp.add_middleware(ResponseCachingMiddleware())
    async with peer_of(mcp) as peer:
        tasks = [(await peer.call("order", title="Emma"))["taskId"] for _ in range(2)]
        assert len(set(tasks)) == 2
        mcp.add_middleware(Replacing())
        assert "not for you" in (await peer.call("order", title="Emma"))["content"][0]["text"]
    assert {type(result).__name__ for result in seen.results} == {"InputRequiredToolResult"}


class Pinned(Enum):
    TITLE = "pinned"


class Pinning(Middleware):
    """Middleware that decides an argument."""

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        if context.message.name != "order":
            return await call_next(context)
        arguments = {**context.message.arguments, "title": Pinned.TITLE}
        return await call_next(context.copy(message=context.message.model_copy(update={"arguments": arguments})))


class CallsAnother(Middleware):
    """Middleware that calls another tool before it passes the client's call on."""

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        if context.message.name != "audit":
            await context.fastmcp_context.fastmcp.call_tool("audit", {"title": context.message.name})
        return await call_next(context)


@pytest.mark.parametrize("declares", [True, False], ids=["task", "page"])
async def test_later_legs_run_the_tool_that_the_client_called(declares: bool) -> None:
    server, tool = made(**paged())
    audited: list[str] = []
    tool(order)

    @tool
    async def audit(title: str) -> None:
        audited.append(title)

    server.add_middleware(CallsAnother())
    async with peers(server) as (found,):
        peer = Peer(found.http, found.url, headers={"x-user": "ann"}, elicitation={} if not declares else None)
        if declares:
            assert await ordered(peer) == ORDERED
        else:
            task = await peer.until((await peer.call("order", title="Emma"))["taskId"], "completed")
            link = link_in(CallToolResult.model_validate(task["result"]))
            browser = Browser(peer.url.removesuffix("/mcp"), "ann")
            assert await browser.answer_all(link, {"How many": "2"}) == "Done"
    assert {*audited} == {"order"}
    del audit


async def test_tool_of_a_dependency_does_not_take_over_the_leg() -> None:
    server, tool = made()

    @tool
    @roundtrip.tool(task=True)
    async def other(ctx: Context) -> str:
        return "other"

    async def price() -> str:
        return str((await server.call_tool("other", {})).structured_content)

    @tool
    @roundtrip.tool(task=True)
    async def buy(title: str, ctx: Context, price: str = FastMcpDepends(price)) -> str:
        return f"{title} {await ctx.ask('copies', 'How many?', int)}"

    async with peer_of(server) as peer:
        task_id = (await peer.call("buy", title="Emma"))["taskId"]
        await peer.asked(task_id, "copies")
        await peer.answer(task_id, copies=2)
        ended = await peer.until(task_id, "completed")
    assert ended["result"]["structuredContent"] == {"result": "Emma 2"}
    del other, buy


@pytest.mark.parametrize("declares", [True, False], ids=["task", "page"])
async def test_later_legs_get_the_arguments_of_middleware(declares: bool) -> None:
    mcp, tool = made(**paged())
    tool(order)
    mcp.add_middleware(Pinning())
    async with peers(mcp) as (found,):
        peer = Peer(found.http, found.url, headers={"x-user": "ann"}, declares=declares, elicitation={})
        if declares:
            peer = Peer(found.http, found.url)
            assert await ordered(peer, title="sent") == {"title": "pinned", "copies": 2}
            return
        link = CallToolResult.model_validate(await peer.call("order", title="sent"))
        browser = Browser(peer.url.removesuffix("/mcp"), "ann")
        assert await browser.answer_all(link_in(link), {"How many": "2"}) == "Done"
        result = await peer.call("continue_call", handle=handle_in(link))
    assert result["structuredContent"] == {"title": "pinned", "copies": 2}


@each_class
@pytest.mark.parametrize("seconds", [20, 0.05])
async def test_call_becomes_a_task_after_some_time(kind: str, seconds: float) -> None:
    server, tool = made(kind)
    go_on = anyio.Event()

    @tool
    @roundtrip.tool(task=after(seconds))
    async def search(words: str) -> dict[str, str]:
        if seconds < 1:
            await go_on.wait()
        return {"found": words}

    async with peer_of(server) as peer:
        reply = await peer.call("search", words="sea")
        go_on.set()
        if seconds < 1:
            reply = (await peer.until(reply["taskId"], "completed"))["result"]
        assert reply["structuredContent"] == {"found": "sea"}
    del search


def test_what_cannot_work_is_rejected_at_registration() -> None:
    mcp, tool = made()
    with pytest.raises(InvalidSignature, match=r"write @mcp.tool\(task=False\) with @roundtrip.tool\(task=True\)"):
        mcp.tool(task=True)(order)
    by_default = FastMCP[Any]("shop", tasks=True)
    install_in_fastmcp(by_default, keys=[KEY])
    with pytest.raises(InvalidSignature, match=r"write @mcp.tool\(task=False\)"):
        by_default.tool(order)
    by_default.tool(task=False)(order)
    for kind in ("fastmcp", "mcpserver"):
        _, tool = made(kind, task_engine=DocketEngine("redis://localhost:1/0"))
        with pytest.raises(InvalidSignature, match="needs a ledger that its workers can reach"):
            tool(order)


async def test_servers_of_a_fleet_share_a_mounted_tools_tasks(tmp_path: Path) -> None:
    def server(*, runs: bool) -> Any:
        child, tool = made()
        tool(order)
        parent, _ = made(ledger=SqliteLedger(tmp_path / "tasks.db", durable=False), run_tasks=runs)
        parent.mount(child, namespace="books")
        return parent

    async with peers(server(runs=False), server(runs=True)) as (front, worker):
        parts = attached(server(runs=True))
        assert parts is not None
        assert parts.identity().stores_calls
        assert await ordered(front, "books_order") == ORDERED
        del worker
