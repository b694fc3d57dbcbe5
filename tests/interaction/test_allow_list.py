"""`allow_tools`: the tools that the whole server may show, whatever else is said of them."""

from typing import Any

import anyio
import pytest

from roundtrip import (
    Server,
)
from roundtrip.testing import Era
from tests.interaction.gates import Switch, said, saying, tools
from tests.players import connect

pytestmark = pytest.mark.anyio


async def test_an_allow_list_stands_above_all_that_is_enabled(era: Era) -> None:
    server, switch = Server[Any]("shop"), Switch()
    for name in ("find", "order", "burn"):
        server.add_tool(saying(name), name, enabled=switch if name == "order" else True)
    async with connect(server, era) as client:
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


def test_an_allow_list_of_unknown_names_says_which_and_changes_nothing() -> None:
    server = Server[Any]("shop")
    server.add_tool(saying("x"), "find")
    server.add_tool(saying("x"), "order", enabled=False)
    with pytest.raises(ValueError, match=r"no tool: burm, orde\. The tools are: find, order"):
        server.allow_tools(["find", "orde", "burm"])
    wrong: Any
    for wrong in ("find", b"find", [1]):
        with pytest.raises(TypeError, match="allow_tools"):
            server.allow_tools(wrong)
    assert list(server.plans) == ["find"]
    server.allow_tools(iter(["find", "order"]))
    assert list(server.plans) == ["find"]


async def test_a_tool_may_change_the_allow_list_and_clients_are_told() -> None:
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
        with anyio.fail_after(20):
            await told.wait()
        assert await tools(client) == ["narrow"]
