"""Functions with promises on servers that do not keep them."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from mcp.client import Client
from mcp.server import MCPServer

import roundtrip
from roundtrip import Server
from roundtrip.install import install
from roundtrip.testing import DECLINE, User
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio

RAN: list[str] = []


def noted(path: str) -> str:
    RAN.append(path)
    return path


@roundtrip.tool(confirm="Delete {path}?")
async def delete(path: str) -> str:
    return noted(path)


@roundtrip.tool(exactly_once=True)
def move(path: str) -> str:
    return noted(path)


class Folder:
    @roundtrip.tool(confirm="Delete {path}?")
    def method(self, path: str) -> str:
        return noted(path)

    @roundtrip.tool(confirm="Delete {path}?")
    @staticmethod
    async def of_none(path: str) -> str:
        return noted(path)

    @roundtrip.tool(confirm="Delete {path}?")
    @classmethod
    async def of_class(cls, path: str) -> str:
        return noted(path)


class Shelf:
    async def delete(self, path: str) -> str:
        return noted(path)

    async def __call__(self, path: str) -> str:
        return await self.delete(path)


@roundtrip.tool(confirm="Delete {path}?")
@functools.lru_cache
def cached(path: str) -> str:
    return noted(path)


PROMISING: dict[str, Callable[..., Any]] = {
    "async": delete,
    "plain": move,
    "method": Folder().method,
    "static": Folder.of_none,
    "class": Folder.of_class,
    "bound": roundtrip.tool(confirm="Delete {path}?")(Shelf().delete),
    "partial": roundtrip.tool(confirm="Delete {path}?")(functools.partial(Shelf.delete, Shelf())),
    "object": roundtrip.tool(confirm="Delete {path}?")(Shelf()),
    "cached": cached,
}


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def log(*given: Any, **named: Any) -> Any:
        return await fn(*given, **named)

    return log


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()
    cached.cache_clear()


@pytest.mark.parametrize("kind", PROMISING)
async def test_sdk_server_without_roundtrip_runs_no_promising_function(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = MCPServer("foreign")
    server.add_tool(PROMISING[kind], name="run")
    async with Client(server) as client:
        result = await client.call_tool("run", {"path": "a"})
    assert result.is_error
    assert RAN == []
    assert "has options of roundtrip, and its server has no roundtrip to keep them" in caplog.text


@pytest.mark.parametrize("kind", PROMISING)
async def test_direct_call_runs_the_function(kind: str) -> None:
    result = PROMISING[kind]("a")
    assert (result if isinstance(result, str) else await result) == "a"
    assert RAN == ["a"]


@pytest.mark.parametrize("fn", [delete, logged(delete), PROMISING["partial"]], ids=["bare", "decorated", "partial"])
@pytest.mark.parametrize("kind", ["roundtrip", "sdk"])
async def test_server_with_roundtrip_confirms_and_runs_it(kind: str, fn: Callable[..., Any]) -> None:
    server: MCPServer[Any] = Server("own", keys=[KEY]) if kind == "roundtrip" else MCPServer("other")
    if kind == "sdk":
        install(server, keys=[KEY])
    server.add_tool(fn)
    declined = await User(server, {"confirm:delete": DECLINE}).call("delete", path="a")
    assert (declined.is_error, RAN) == (True, [])
    assert (await User(server, {"confirm:delete": True}).call("delete", path="a")).value == "a"
    assert RAN == ["a"]


async def test_body_on_a_server_with_roundtrip_may_call_it() -> None:
    server = Server("own", keys=[KEY])

    @server.tool()
    async def clear() -> str:
        return await delete("a") + move("b")

    assert (await User(server, {}).call("clear")).value == "ab"
    assert RAN == ["a", "b"]


def test_option_that_promises_nothing_leaves_the_function() -> None:
    def count() -> int:
        return 1

    assert roundtrip.tool(title="Count")(count) is count
