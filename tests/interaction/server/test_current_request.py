"""`get_context` and similar functions: the current request, for code without a context parameter."""

from collections.abc import Callable

import anyio.to_thread
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from roundtrip import Context, Depends, Server, get_access_token, get_context, get_http_headers, get_request
from roundtrip.testing import Era, User, served

pytestmark = pytest.mark.anyio


def deep_down() -> str:
    """Return the title from code far from any parameter."""
    return f"{len(get_context().request_id) > 0}"


def test_request_functions_fail_outside_of_a_request() -> None:
    functions: list[Callable[[], object]] = [get_context, get_request, get_access_token, get_http_headers]
    told: list[str] = []
    for function in functions:
        with pytest.raises(RuntimeError) as caught:
            function()
        told.append(str(caught.value).partition(":")[0].partition(" request")[0])
    assert told == [f"{function.__name__}() was called outside a" for function in functions]


async def test_a_function_finds_the_context_in_every_kind_of_body(era: Era) -> None:
    server = Server("shop")

    @server.tool
    async def plain() -> str:
        return deep_down()

    @server.tool
    def in_a_thread() -> str:
        return deep_down()

    @server.tool
    async def by_dependency(found: str = Depends(deep_down)) -> str:
        return found

    @server.tool
    async def in_another_thread() -> str:
        return await anyio.to_thread.run_sync(deep_down)

    for name in ("plain", "in_a_thread", "by_dependency", "in_another_thread"):
        assert (await User(server, era=era).call(name)).text == "True", name


async def test_current_context_is_that_of_the_body(era: Era) -> None:
    server = Server("shop")
    seen: list[str] = []

    @server.tool
    async def inner(ctx: Context) -> str:
        assert get_context() is ctx
        seen.append(ctx.call.id)
        return "inner"

    @server.tool
    async def outer(ctx: Context, same: Context = Depends(get_context)) -> str:
        await server.call_tool("inner", {}, ctx)
        assert ctx is same
        assert ctx is get_context()
        seen.append(ctx.call.id)
        return str(await get_context().ask("sure", "Sure?", bool))

    assert (await User(server, {"sure": {"value": True}}, era=era).call("outer")).text == "True"
    assert len(set(seen)) >= 2


async def test_request_and_headers_exist_over_http_alone(era: Era) -> None:
    server = Server("shop")

    @server.tool
    async def shows() -> list[str]:
        return [get_request().url.path, get_http_headers()["x-shop"]]

    @server.tool
    async def headers() -> int:
        return len(get_http_headers())

    user = User(server, era=era)
    failed = await user.call("shows")
    assert failed.is_error
    assert "needs an HTTP request, but this request came over another transport" in failed.text
    assert (await user.call("headers")).text == "0"

    async with (
        served(server) as url,
        httpx2.AsyncClient(headers={"X-Shop": "corner"}) as web,
        Client(streamable_http_client(url, http_client=web), mode=era.value) as client,
    ):
        shown = (await client.call_tool("shows")).structured_content
    assert shown == {"result": ["/mcp", "corner"]}
