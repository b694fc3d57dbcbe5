"""Context managers of visibility gates hold during the gated function, and are exited after it in every case."""

import operator
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Depends, Server
from roundtrip.testing import Era
from tests.interaction.visibility.gates import said, saying, tools
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect
from tests.kit.time_limits import LIMIT, hang
from tests.kit.wire import Json

pytestmark = pytest.mark.anyio


current: ContextVar[str] = ContextVar("current", default="nobody")


def entering(log: list[str]) -> Callable[[], Any]:
    async def session() -> AsyncGenerator[str]:
        log.append("enter")
        current.set("ada")
        try:
            yield "session"
        except BaseException as error:
            log.append(type(error).__name__)
            raise
        else:
            log.append("commit")
        finally:
            log.append("leave")

    return session


@asynccontextmanager
async def _with_sessions(era: Era, log: list[str], *replies: Any) -> AsyncGenerator[Client]:
    server, session = Server[Any]("shop"), entering(log)

    def pro(session: str = Depends(session)) -> bool:
        return session == "session"

    async def slowly(session: str = Depends(session)) -> bool:
        await anyio.lowlevel.checkpoint()
        return bool(session)

    @server.tool(enabled=pro)
    async def order(title: str, session: str = Depends(session)) -> str:
        log.append("body")
        if title == "none":
            raise LookupError(title)
        return f"{title} {session} {current.get()}"

    @server.tool(enabled=slowly)
    async def ask(ctx: Context) -> str:
        sure = await ctx.ask("sure", "Sure?", bool)
        return f"{sure} {current.get()}"

    @server.tool(enabled=pro, timeout=LIMIT)
    async def slow() -> None:
        await hang()

    @server.tool(enabled=Depends(operator.not_, session))
    async def shut() -> str:
        return "never"

    @server.tool(enabled=pro)
    def plain() -> str:
        return current.get()

    async with connect(server, era, Person(*replies)) as client:
        # The SDK's client would list the tools by itself after the first result.
        await tools(client)
        log.clear()
        yield client


@pytest.mark.parametrize(
    ("name", "arguments", "outcome", "left"),
    [
        ("order", {"title": "Dune"}, "Dune session ada", ["body", "commit"]),
        ("plain", {}, "ada", ["commit"]),
        ("order", {"title": "none"}, "Error", ["body", "LookupError"]),
        ("order", {"no": "Dune"}, "title", ["ToolError"]),
        ("shut", {}, "Unknown tool: shut", ["commit"]),
    ],
    ids=["success", "a plain body", "an error", "arguments that do not fit", "shut"],
)
async def test_gate_dependencies_live_until_the_call_ends(
    name: str, arguments: Json, outcome: str, left: list[str]
) -> None:
    log: list[str] = []
    async with _with_sessions(Era.RETRY, log) as client:
        assert outcome in await said(client, name, arguments)
    assert log == ["enter", *left, "leave"]


async def test_suspension_exits_gate_dependencies(era: Era) -> None:
    log: list[str] = []
    async with _with_sessions(era, log, {"value": True}) as client:
        assert await said(client, "ask") == "True ada"
    suspended = ["enter", "Suspension", "leave"] if era is Era.RETRY else []
    assert log == [*suspended, "enter", "commit", "leave"]


@pytest.mark.usefixtures("limits")
async def test_timeout_exits_gate_dependencies() -> None:
    log: list[str] = []
    async with _with_sessions(Era.RETRY, log) as client:
        with pytest.raises(MCPError, match="timed out"):
            await client.call_tool("slow", {})
    assert log[0] == "enter"
    assert log[-1] == "leave"
    assert "commit" not in log


async def test_listing_enters_gate_dependencies_once() -> None:
    log: list[str] = []
    async with _with_sessions(Era.RETRY, log) as client:
        assert await tools(client) == ["order", "ask", "slow", "plain"]
        assert log == ["enter", "commit", "leave"]


async def test_failing_gate_exit_ends_neither_call_nor_list(caplog: pytest.LogCaptureFixture) -> None:
    server = Server[Any]("shop")

    async def session() -> AsyncGenerator[bool]:
        yield True
        raise OSError("the disk is full")

    server.add_tool(saying("done"), "order", enabled=session)
    async with connect(server, Era.RETRY) as client:
        assert await tools(client) == ["order"]
        assert await said(client, "order") == "done"
    assert caplog.text.count("failed while exiting") == 2


@pytest.mark.parametrize("where", ["in the body", "in the gate"])
async def test_cancelled_request_exits_gate_dependencies(where: str) -> None:
    server, log = Server[Any]("shop"), list[str]()
    there = anyio.Event()

    async def waits(session: str = Depends(entering(log))) -> str:
        if where == "in the gate":
            await for_ever()
        return session

    @server.tool(enabled=waits)
    async def order() -> None:
        await for_ever()

    async def for_ever() -> None:
        there.set()
        await anyio.sleep_forever()

    async def cancelled(request: Callable[..., Any], *arguments: Any) -> None:
        nonlocal there
        there = anyio.Event()
        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as group:
                group.start_soon(request, *arguments)
                await there.wait()
                group.cancel_scope.cancel()

    await cancelled(server.call_tool, "order", {})
    assert log == ["enter", "CancelledError", "leave"]
    log.clear()
    if where == "in the gate":
        await cancelled(server.list_tools)
        assert log == ["enter", "CancelledError", "leave"]
