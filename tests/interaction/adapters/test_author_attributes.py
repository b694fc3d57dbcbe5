"""Servers whose authors keep objects of the SDK's and FastMCP's types in attributes of their own."""

from typing import Any

import pytest
from fastmcp import FastMCP
from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver.prompts import PromptManager
from mcp.server.mcpserver.resources import ResourceManager
from mcp.server.mcpserver.tools import ToolManager
from mcp.server.request_state import RequestStateSecurity

import roundtrip
from roundtrip import Server
from roundtrip.adapters import fastmcp_names
from roundtrip.fastmcp import install
from roundtrip.install import install as install_in_sdk
from roundtrip.testing import Era, User
from tests.kit.players import connect

pytestmark = pytest.mark.anyio

KEYS = ["7f" * 32]


class Crowded(Server[Any]):
    def __init__(self) -> None:
        self.archive, self.old, self.upstream = PromptManager(), ResourceManager(), LowLevelServer("up")
        super().__init__("crowded", keys=KEYS)
        self._resources, self._handle = {}, None


@pytest.mark.parametrize("era", [Era.RETRY, Era.LIVE])
async def test_managers_of_the_author_do_not_uncover_hidden_items(era: Era) -> None:
    server = Crowded()

    @server.prompt(enabled=False)
    def secret() -> str:
        return "secret"

    @server.resource("secret://x", enabled=False)
    def hidden() -> str:
        return "secret"

    @server.resource("open://x")
    def shown() -> str:
        return "open"

    async with connect(server, era) as client:
        assert (await client.list_prompts()).prompts == []
        assert [str(one.uri) for one in (await client.list_resources()).resources] == ["open://x"]
        assert "open" in str(await client.read_resource("open://x"))
        for hide in (client.get_prompt("secret"), client.read_resource("secret://x")):
            with pytest.raises(Exception, match=r"Unknown|not found"):
                await hide


async def test_policy_in_an_attribute_of_the_author_is_not_the_server_s() -> None:
    class Gateway(FastMCP[Any]):
        def __init__(self) -> None:
            self.backend = LowLevelServer[Any]("other")
            super().__init__("gateway")
            self.upstream = {"demo": RequestStateSecurity(keys=[b"\x01" * 32], bind_principal=None)}

    gateway = Gateway()
    assert fastmcp_names.policy_of(gateway) is None
    install(gateway, keys=KEYS)

    @gateway.tool
    @roundtrip.tool(confirm="Really?")
    async def wipe() -> str:
        return "wiped"

    assert (await User(gateway, {"confirm:wipe": True}).call("wipe")).text == "wiped"


async def test_tools_of_an_author_s_manager_stay_apart() -> None:
    class Desk(MCPServer[Any]):
        def __init__(self) -> None:
            self.archive = ToolManager()
            super().__init__("desk")

    desk = Desk()
    install_in_sdk(desk, keys=KEYS)

    @desk.tool()
    @roundtrip.tool(confirm="Really?")
    async def wipe() -> str:
        return "wiped"

    assert (await User(desk, {"confirm:wipe": True}).call("wipe")).text == "wiped"
    assert desk.archive.list_tools() == []
