"""`allow_tools`: the tools that the whole server may show, whatever else is said of them."""

from typing import Any

import anyio
import pytest

from roundtrip import Server
from roundtrip.testing import Era
from tests.interaction.visibility.gates import Switch, said, saying, tools
from tests.kit.players import connect
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


async def test_allow_list_overrides_everything_enabled() -> None:
    server, switch = Server[Any]("shop"), Switch()
    for name in ("find", "order", "burn"):
        server.add_tool(saying(name), name, enabled=switch if name == "order" else True)
    async with connect(server, Era.RETRY) as client:
        server.allow_tools(["order", "find"])
        assert await tools(client) == ["find", "order"]
        assert await said(client, "burn") == "Unknown tool: burn"
        server.enable(names="burn")
        server.disable(names="find")
        assert await tools(client) == ["order"]
        switch.on = False
        assert await tools(client) == []
        server.add_tool(saying("new"), "new")
        assert await tools(client) == []
        server.allow_tools(None)
        assert await tools(client) == ["burn", "new"]
        server.allow_tools([])
        assert await tools(client) == []


async def test_an_allowed_name_of_no_tool_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Server[Any]("shop")
    server.allow_tools(["find", "orde", "burm"])
    server.add_tool(saying("x"), "find")
    server.add_tool(saying("x"), "order", enabled=False)
    async with connect(server, Era.RETRY) as client:
        for _ in range(2):
            assert await tools(client) == ["find"]
    [logged] = [record.getMessage() for record in caplog.records if "allow_tools" in record.getMessage()]
    assert logged == "allow_tools() names tools that do not exist: burm, orde. The tools are: find, order"


def test_an_allow_list_takes_names() -> None:
    server = Server[Any]("shop")
    server.add_tool(saying("x"), "find")
    server.add_tool(saying("x"), "order", enabled=False)
    wrong: Any
    for wrong in ("find", b"find", [1]):
        with pytest.raises(TypeError, match="allow_tools"):
            server.allow_tools(wrong)
    assert list(server.internals.plans) == ["find"]
    server.allow_tools(iter(["find", "order"]))
    assert list(server.internals.plans) == ["find"]


async def test_tool_may_change_the_allow_list_and_notify_clients() -> None:
    server, told = Server[Any]("shop"), anyio.Event()

    @server.tool
    def narrow() -> str:
        server.allow_tools(["narrow"])
        return "done"

    server.add_tool(saying("x"), "other")

    async def on_message(message: Any) -> None:
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            told.set()

    async with connect(server, Era.LIVE, message_handler=on_message) as client:
        assert await said(client, "narrow") == "done"
        with anyio.fail_after(WAIT):
            await told.wait()
        assert await tools(client) == ["narrow"]
