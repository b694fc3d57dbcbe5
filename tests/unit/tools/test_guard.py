"""Functions with promises on servers that do not keep them."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from mcp.client import Client
from mcp.server import MCPServer
from mcp_types import ElicitResult, Tool
from pydantic import Field

import roundtrip
from roundtrip import Context, Depends, Server
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


def who() -> str:
    return "me"


async def full(
    folder: str, path: Annotated[str, Field(description="The file")], user: Annotated[str, Depends(who)]
) -> str:
    """Delete a file of a folder."""
    return noted(f"{folder}/{path} for {user}")


class Bin:
    async def __call__(self, path: str, ctx: Context, user: Annotated[str, Depends(who)]) -> str:
        """Delete a file."""
        return noted(f"{path} for {user} by {type(ctx).__name__}")


@functools.lru_cache
def remembered(path: Annotated[str, Field(description="The file")]) -> str:
    """Delete a file once."""
    return noted(path)


async def accepting(context: Any, params: Any) -> ElicitResult:
    del context, params
    return ElicitResult(action="accept", content={})


@pytest.mark.parametrize(
    ("make", "ran"),
    [
        (lambda: full, "/etc/a for me"),
        (lambda: functools.partial(full, "/safe"), "/safe/a for me"),
        (lambda: functools.partial(full, folder="/safe"), "/safe/a for me"),
        (Bin, "a for me by Context"),
        (lambda: remembered, "a"),
    ],
    ids=["function", "by position", "by keyword", "object", "cached"],
)
@pytest.mark.parametrize("kind", ["roundtrip", "sdk"])
async def test_tool_with_a_promise_takes_what_it_takes_without(kind: str, make: Callable[[], Any], ran: str) -> None:
    remembered.cache_clear()
    listed: list[Tool] = []
    either: list[dict[str, Any]] = [{"ttl": 60}, {"confirm": "Delete {path}?"}]
    for options in either:
        server: MCPServer[Any] = Server("own", keys=[KEY]) if kind == "roundtrip" else MCPServer("other")
        if kind == "sdk":
            install(server, keys=[KEY])
        server.add_tool(roundtrip.tool(**options)(make()), name="run")
        async with Client(server, elicitation_callback=accepting) as client:
            listed += (await client.list_tools()).tools
            for sent in ({"path": "a", "folder": "/etc"}, {"path": "a", "folder": "/etc", "user": "root"}):
                await client.call_tool("run", sent)
        remembered.cache_clear()
    assert listed[0] == listed[1]
    assert set(RAN) == {ran}


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
    assert "has roundtrip options, and its server does not use roundtrip" in caplog.text


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
