"""Rows about injected values, visibility gates, results, and changing lists."""

# FastMCP's dependencies are parameter defaults.
# ruff: noqa: B008

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Final

import anyio
from fastmcp.dependencies import Depends as FastDepends
from fastmcp.server.auth import AuthContext
from mcp.server import MCPServer
from mcp.server.mcpserver import Resolve
from mcp.shared.exceptions import MCPError
from mcp_types import EmbeddedResource, TextContent, ToolListChangedNotification

from benchmarks.peers.clients import LIVE, call_text, connect, short
from benchmarks.peers.row import Row, lacks
from benchmarks.peers.servers import fast, ours, theirs

__all__ = ["ROWS"]


class Crowd:
    """Functions that count how many of them run at once."""

    SIZE: Final = 4

    def __init__(self) -> None:
        self._running = 0
        self.most = 0

    def member(self) -> Callable[[], Any]:
        """Return a function that waits briefly."""

        async def wait() -> str:
            self._running += 1
            self.most = max(self.most, self._running)
            await asyncio.sleep(0.01)
            self._running -= 1
            return "done"

        return wait

    async def at(self, server: Any) -> str:
        """Call the tool, and return how many functions ran at once."""
        text = await call_text(server)
        return f"{self.most} at a time" if text == "done" else short(text)


def with_crowd(server: Any, crowd: Crowd) -> Any:
    a, b, c, d = (crowd.member() for _ in range(Crowd.SIZE))

    @server.tool()
    async def work(
        a: Annotated[str, Resolve(a)],
        b: Annotated[str, Resolve(b)],
        c: Annotated[str, Resolve(c)],
        d: Annotated[str, Resolve(d)],
    ) -> str:
        return d

    return server


async def concurrency_ours() -> str:
    crowd = Crowd()
    return await crowd.at(with_crowd(ours(), crowd))


async def concurrency_sdk() -> str:
    crowd = Crowd()
    return await crowd.at(with_crowd(theirs(), crowd))


async def concurrency_fastmcp() -> str:
    crowd, server = Crowd(), fast()
    one, two, three, four = (crowd.member() for _ in range(Crowd.SIZE))

    @server.tool
    async def work(
        a: str = FastDepends(one), b: str = FastDepends(two), c: str = FastDepends(three), d: str = FastDepends(four)
    ) -> str:
        return d

    return await crowd.at(server)


class Session:
    """Database session that is opened and closed."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def opened(self) -> AsyncGenerator[str]:
        """Yield the session, like FastAPI's dependencies."""
        self.events.append("opened")
        yield "session"
        self.events.append("closed")


def given(text: str, session: Session) -> str:
    if text == "str":
        around = session.events == ["opened", "body", "closed"]
        return f"gives the value, and closes it {'after the body' if around else 'before the body'}"
    return f"gives the `{text}` object" if text.isidentifier() or "generator" in text else short(text)


async def yield_ours() -> str:
    session, server = Session(), ours()

    @server.tool()
    async def work(value: Annotated[Any, Resolve(session.opened)]) -> str:
        session.events.append("body")
        return type(value).__name__

    return given(await call_text(server), session)


async def yield_sdk() -> str:
    session, server = Session(), theirs()

    @server.tool()
    async def work(value: Annotated[Any, Resolve(session.opened)]) -> str:
        session.events.append("body")
        return type(value).__name__

    return given(await call_text(server), session)


async def yield_fastmcp() -> str:
    session, plain = Session(), fast()

    @plain.tool
    async def work(value: Any = FastDepends(session.opened)) -> str:
        session.events.append("body")
        return type(value).__name__

    generator = given(await call_text(plain), session)
    managed_session, managed = Session(), fast()
    opened = asynccontextmanager(managed_session.opened)

    @managed.tool(name="work")
    async def work_managed(value: Any = FastDepends(opened)) -> str:
        managed_session.events.append("body")
        return type(value).__name__

    return f"{generator}; an `asynccontextmanager` {given(await call_text(managed), managed_session)}"


def price() -> str:
    return "the server's"


async def supplied(server: Any) -> str:
    """Send a value for the parameter that the server fills."""
    text = await call_text(server, arguments={"value": "the client's"})
    return {"the server's": "ignored", "the client's": "used"}.get(
        text, "the call is rejected" if text.startswith("error") else short(text)
    )


def with_price(server: Any) -> Any:
    @server.tool()
    async def work(value: Annotated[str, Resolve(price)]) -> str:
        return value

    return server


async def supply_ours() -> str:
    return await supplied(with_price(ours()))


async def supply_sdk() -> str:
    return await supplied(with_price(theirs()))


async def supply_fastmcp() -> str:
    server = fast()

    @server.tool
    async def work(value: str = FastDepends(price)) -> str:
        return value

    return await supplied(server)


def rated(rate: str = "default") -> str:
    return rate


def with_default(server: Any) -> Any:
    @server.tool()
    async def work(value: Annotated[str, Resolve(rated)]) -> str:
        return value

    return server


async def default_of(make: Callable[[], Any]) -> str:
    try:
        server = make()
    except Exception as error:  # noqa: BLE001 - an error of any kind is a fact
        return f"`{type(error).__name__}` at registration"
    text = await call_text(server)
    return "gets its default" if text == "default" else short(text)


async def default_ours() -> str:
    return await default_of(lambda: with_default(ours()))


async def default_sdk() -> str:
    return await default_of(lambda: with_default(theirs()))


async def default_fastmcp() -> str:
    def make() -> Any:
        server = fast()

        @server.tool
        async def work(value: str = FastDepends(rated)) -> str:
            return value

        return server

    return await default_of(make)


async def ring(make: Callable[[], Any]) -> str:
    try:
        server = make()
    except Exception as error:  # noqa: BLE001 - an error of any kind is a fact
        named = "first" in str(error) and "second" in str(error)
        return f"`{type(error).__name__}` at registration{', with the path' if named else ''}"
    text = await call_text(server)
    return "each call fails" if text.startswith("error") else short(text)


def with_ring(server: Any) -> Any:
    """Register a tool that needs one of two functions that need each other."""

    def first(value: Any) -> str:
        return str(value)

    def second(value: Any) -> str:
        return str(value)

    first.__annotations__["value"] = Annotated[Any, Resolve(second)]
    second.__annotations__["value"] = Annotated[Any, Resolve(first)]

    @server.tool()
    async def work(value: Annotated[Any, Resolve(first)]) -> str:
        return str(value)

    return server


async def cycle_ours() -> str:
    return await ring(lambda: with_ring(ours()))


async def cycle_sdk() -> str:
    return await ring(lambda: with_ring(theirs()))


async def cycle_fastmcp() -> str:
    def make() -> Any:
        def first(value: Any = None) -> str:
            return str(value)

        def second(value: Any = FastDepends(first)) -> str:
            return str(value)

        first.__defaults__ = (FastDepends(second),)
        server = fast()

        @server.tool
        async def work(value: Any = FastDepends(first)) -> str:
            return str(value)

        return server

    return await ring(make)


async def listed(server: Any) -> str:
    """List two tools, one with a gate that raises."""
    async with connect(server) as client:
        try:
            names = {tool.name for tool in (await client.list_tools()).tools}
        except Exception as error:  # noqa: BLE001 - an error of any kind is a fact
            return f"the list fails: {short(str(error))}"
    return {frozenset({"open"}): "hides its tool only", frozenset({"open", "gated"}): "shows its tool"}.get(
        frozenset(names), f"lists {sorted(names)}"
    )


def opened() -> str:
    return "open"


async def gate_ours() -> str:
    def gate() -> bool:
        raise RuntimeError("the plans cannot be read")

    server = ours()
    server.tool(name="open")(opened)
    server.tool(name="gated", enabled=gate)(opened)
    return f"`enabled=`: {await listed(server)}"


async def gate_fastmcp() -> str:
    def gate(context: AuthContext) -> bool:
        raise RuntimeError("the plans cannot be read")

    server = fast()
    server.tool(name="open")(opened)
    server.tool(name="gated", auth=gate)(opened)
    return f"`auth=`: {await listed(server)}"


async def returned(server: Any) -> str:
    """Call a tool that returns bytes, and return what arrives."""
    async with connect(server) as client:
        result = await client.call_tool("work", {})
    if result.is_error:
        return "the call fails"
    (content,) = result.content
    if isinstance(content, EmbeddedResource):
        return "an embedded resource"
    return "a text" if isinstance(content, TextContent) else f"`{type(content).__name__}`"


def with_bytes(server: Any) -> Any:
    def work() -> bytes:
        return b"plain"

    server.tool()(work)
    return server


async def bytes_ours() -> str:
    return await returned(with_bytes(ours()))


async def bytes_sdk() -> str:
    return await returned(with_bytes(theirs()))


async def bytes_fastmcp() -> str:
    return await returned(with_bytes(fast()))


_SECONDS: Final = 1.0
"""Time within which a sent notification arrives in memory."""


async def announced(make: Callable[[], Any]) -> str:
    """Call a tool that adds another tool, and return which clients are notified."""
    found: list[str] = []
    heard = anyio.Event()

    async def handle(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            heard.set()

    async with connect(make(), mode=LIVE, message_handler=handle) as client:
        await client.call_tool("work", {})
        with anyio.move_on_after(_SECONDS):
            await heard.wait()
            found.append("2025-11-25")
    async with connect(make()) as client:
        with suppress(MCPError):  # a server without `subscriptions/listen` announces nothing through it
            async with client.listen(tools_list_changed=True) as changes:
                await client.call_tool("work", {})
                with anyio.move_on_after(_SECONDS):
                    await anext(aiter(changes))
                    found.append("2026-07-28")
    told = {0: "no client is notified", 2: "clients are notified"}
    return told.get(len(found), f"clients of {''.join(found)} only are notified")


def adding(server: Any) -> Any:
    async def work() -> str:
        server.tool(name="other")(opened)
        return "done"

    server.tool(name="work")(work)
    return server


async def change_ours() -> str:
    return await announced(lambda: adding(ours()))


async def change_sdk() -> str:
    return await announced(lambda: adding(theirs()))


async def change_fastmcp() -> str:
    return await announced(lambda: adding(fast()))


ROWS: Final = (
    Row(
        name="concurrency",
        feature="Four independent functions of one call, each of which waits",
        test="tests/unit/resolvers/test_concurrency.py::test_resolver_runs_once_its_requirements_are_ready",
        roundtrip=concurrency_ours,
        sdk=concurrency_sdk,
        fastmcp=concurrency_fastmcp,
    ),
    Row(
        name="yield",
        feature="A function with `yield` fills a parameter",
        test="tests/interaction/teardown/test_teardown.py::test_dependencies_exit_in_reverse_order_after_success",
        roundtrip=yield_ours,
        sdk=yield_sdk,
        fastmcp=yield_fastmcp,
    ),
    Row(
        name="supply",
        feature="A client sends a value for a parameter that the server fills",
        test="tests/interaction/resolvers/test_depends.py::test_a_client_that_sends_a_value_for_it_is_ignored",
        roundtrip=supply_ours,
        sdk=supply_sdk,
        fastmcp=supply_fastmcp,
    ),
    Row(
        name="default",
        feature="A parameter with a default, of a function that fills another",
        test="tests/unit/resolvers/test_inputs.py::test_default_fills_only_where_nothing_else_does",
        roundtrip=default_ours,
        sdk=default_sdk,
        fastmcp=default_fastmcp,
    ),
    Row(
        name="cycle",
        feature="Two functions need each other",
        test="tests/unit/resolvers/test_refusals.py::test_a_cycle_is_rejected_and_drawn_however_long_it_is",
        roundtrip=cycle_ours,
        sdk=cycle_sdk,
        fastmcp=cycle_fastmcp,
    ),
    Row(
        name="gate",
        feature="A function that decides who sees a tool raises an exception",
        test="tests/interaction/visibility/test_gates_per_request.py::test_a_gate_that_raises_hides_only_what_it_gates",
        roundtrip=gate_ours,
        sdk=lacks(MCPServer.tool, "enabled", "auth"),
        fastmcp=gate_fastmcp,
    ),
    Row(
        name="bytes",
        feature="A tool returns `bytes`",
        test="tests/unit/tools/test_results.py::test_bytes_become_an_embedded_resource",
        roundtrip=bytes_ours,
        sdk=bytes_sdk,
        fastmcp=bytes_fastmcp,
    ),
    Row(
        name="change",
        feature="A call adds a tool, and announces nothing itself",
        test="tests/interaction/visibility/test_list_changed.py::test_change_is_announced_once_by_any_author",
        roundtrip=change_ours,
        sdk=change_sdk,
        fastmcp=change_fastmcp,
    ),
)
