"""Hostile arguments and unreadable results over stdio: each fails its own call and no other."""

from collections.abc import Callable
from typing import Any

import pytest
from mcp_types import CallToolResult

from roundtrip import Server, ToolResult
from roundtrip.testing import Era
from tests.kit.hosts import WAIT, stdio
from tests.kit.players import connect, text_of

pytestmark = pytest.mark.anyio

HOSTILE = (
    '{"name": "\\ud800"}',
    '{"\\ud800": 1, "name": "x"}',
    '{"name": "x", "a":' + '{"a":' * 240 + "1" + "}" * 241,
)


def echoing() -> Server[Any]:
    server = Server[Any]("echoing")

    @server.tool
    def name_of(x: dict[str, Any]) -> str:
        return x["name"]

    @server.tool
    def raised(x: dict[str, Any]) -> str:
        raise ValueError(x["name"])

    @server.tool
    def untyped(x: dict[str, Any]):
        return x

    @server.tool
    def whole(x: dict[str, Any]) -> ToolResult:
        return ToolResult(content="x", structured_content=x, meta=x)

    return server


RETURNED: dict[str, Callable[[], Any]] = {
    "text": lambda: "\ud800",
    "structured": lambda: ToolResult(content="x", structured_content={"a": "\ud800"}),
    "meta": lambda: ToolResult(content="x", meta={"a": object()}),
    "key": lambda: CallToolResult(content=[], structured_content={"\ud800": 1}),
    "number": lambda: {"a": [float("nan")]},
    "digits": lambda: {"a": 10**5000},
    "depth": lambda: CallToolResult(content=[], structured_content=nested(240)),
}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def returning() -> Server[Any]:
    server = Server[Any]("returning", log_level="CRITICAL")

    @server.tool
    def give(what: str):
        return RETURNED[what]()

    return server


async def test_no_argument_ends_a_server_on_stdio(era: Era) -> None:
    async with connect(stdio(echoing), era) as client:
        for text in HOSTILE:
            for tool in ("name_of", "raised", "untyped", "whole"):
                assert (await client.call_tool(tool, {"x": text}, read_timeout_seconds=WAIT)).is_error
        assert text_of(await client.call_tool("name_of", {"x": '{"name": "Ada"}'})) == "Ada"


async def test_no_result_ends_a_server_on_stdio(era: Era) -> None:
    async with connect(stdio(returning), era) as client:
        for what in RETURNED:
            result = await client.call_tool("give", {"what": what}, read_timeout_seconds=WAIT)
            assert result.is_error
            assert "a result" in text_of(result)
