"""`Mcp-Param-*` headers are checked against tools of roundtrip's own registry."""

from typing import Annotated, Any

import pytest
from pydantic import Field

from roundtrip import Resolve, Server
from roundtrip.testing import Steps, served
from tests.kit.shops import KEY, Choice, sure
from tests.kit.wire import accept, wire

pytestmark = pytest.mark.anyio


def shop(trace: Steps | None = None) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], trace=trace)

    @server.tool()
    async def order(
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
        choice: Annotated[Choice, Resolve(sure)],
    ) -> str:
        return f"{region} {choice.ok}"

    return server


async def test_header_contradicting_an_argument_is_rejected_on_every_leg() -> None:
    trace = Steps()
    good = {"Mcp-Param-Region": "eu"}
    wrong: list[dict[str, str]] = [{}, {"Mcp-Param-Region": "us"}]
    first = {"name": "order", "arguments": {"region": "eu"}}
    async with served(shop(trace), stateless_http=True) as url, wire(url) as post:
        refused = [await post.post("tools/call", first, headers=headers) for headers in wrong]
        assert trace.transitions == []
        state = (await post.post("tools/call", first, headers=good))["result"]["requestState"]
        second = {**first, "requestState": state, "inputResponses": {"sure": accept(ok=True)}}
        refused += [await post.post("tools/call", second, headers=headers) for headers in wrong]
        result = (await post.post("tools/call", second, headers=good))["result"]
    assert [answer["error"]["code"] for answer in refused] == [-32020] * 4
    assert "Mcp-Param-Region" in refused[0]["error"]["message"]
    assert result["structuredContent"] == {"result": "eu True"}


async def test_a_client_cannot_smuggle_a_header_for_a_filled_parameter() -> None:
    async with served(shop(), stateless_http=True) as url, wire(url) as post:
        headers = {"Mcp-Param-Region": "eu", "Mcp-Param-Choice": "true"}
        first = {"name": "order", "arguments": {"region": "eu", "choice": {"ok": True}}}
        result = (await post.post("tools/call", first, headers=headers))["result"]
    assert list(result["inputRequests"]) == ["sure"]
