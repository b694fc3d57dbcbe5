"""Agents that try to answer a question for a human: by texts in requests, by an HTTP tool, and as clients of tasks."""

import json
from typing import Any

import httpx
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from roundtrip import Context, Elicit, Server
from tests.interaction.pages.paged import paged
from tests.kit.hosts import hosted
from tests.kit.page_users import Browser, client_of, handle_in, link_in, text_of
from tests.kit.peer import Peer
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

PAID: list[str] = []
SECRETS = ("Delete", "How many?", "A color?")
NAMES = ("confirm:pay", "size", "color", "review")
CHANNELS = ("form", "url", "link", "model")


def shop() -> Server[Any]:
    server = paged("shop", wait=0.2, channels=CHANNELS)

    @server.tool(confirm="Delete {what}?", exactly_once=True)
    async def pay(what: str) -> str:
        """Pay."""
        PAID.append(what)
        return "paid"

    @server.tool()
    async def pick(ctx: Context) -> str:
        """Ask a human and anyone."""
        said = await ctx.ask_all(
            {"size": Elicit("How many?", int), "color": Elicit("A color?", str, answered_by="anyone")}
        )
        PAID.append("picked")
        return json.dumps(said)

    @server.tool(task=True)
    async def background(ctx: Context) -> str:
        """Wait as a task."""
        return str(await ctx.ask("size", "How many?", int))

    return server


GUESSES: list[Any] = [{}, True, 5, None, {"value": 5}, {"action": "accept", "content": {"value": 5}}, "accept"]


@pytest.mark.parametrize(("mode", "tool"), [("2026-07-28", "pay"), ("legacy", "pick")])
async def test_no_text_of_a_model_answers_for_a_human(tool: str, mode: str) -> None:
    PAID.clear()
    given = {"what": "all"} if tool == "pay" else {}
    async with hosted(shop().streamable_http_app()) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool(tool, given)
        handle, ticket = handle_in(asked), link_in(asked).rpartition("/")[2]
        told = [text_of(asked)]
        for name in NAMES:
            for guess in GUESSES:
                answers = {name: guess}
                refused = await client.call_tool("continue_call", {"handle": handle, "answers": answers})
                assert refused.is_error
                told.append(text_of(refused))
        assert len(set(told[1:])) == 1
        # In the arguments of the tool, which are another call's then, in metadata, and in place of the handle.
        answers = {name: {"action": "accept", "content": {"value": 5}} for name in NAMES}
        metas: list[Any] = [{"answers": answers}, {"inputResponses": answers}, {"roundtrip/answers": answers}]
        extras: list[Any] = [{"answers": answers}, {"inputResponses": answers}, {"answered_by": "anyone"}]
        told += [text_of(await client.call_tool(tool, given, meta=meta)) for meta in metas]
        told += [text_of(await client.call_tool(tool, {**given, **extra})) for extra in extras]
        for forged in (ticket, f"{handle}.{ticket}", f"{handle}#answers", json.dumps(answers), "", "é" * 20):
            attempt = await client.call_tool("continue_call", {"handle": forged, "answers": answers})
            assert attempt.is_error
            told.append(text_of(attempt))
        if mode != "legacy":
            responses: Any = {name: ElicitResult(action="accept", content={"value": 5}) for name in NAMES}
            again = await client.session.call_tool(tool, given, input_responses=responses, allow_input_required=True)
            told.append(text_of(again))
            with pytest.raises(MCPError):
                await client.session.call_tool(tool, given, input_responses=responses, request_state=handle)
        assert not any(secret in text for text in told for secret in SECRETS)
        last = await client.call_tool("continue_call", {"handle": handle})
        assert handle_in(last) == handle
    assert PAID == []


async def test_handle_of_a_call_is_no_task() -> None:
    PAID.clear()
    async with (
        hosted(shop().streamable_http_app()) as url,
        client_of(url) as client,
        httpx.AsyncClient(headers={"x-user": "ann"}, timeout=WAIT) as http,
    ):
        asked = await client.call_tool("pay", {"what": "all"})
        handle = handle_in(asked)
        peer = Peer(http, f"{url}/mcp", declares=True)
        accepted: dict[str, Any] = {"confirm:pay": {"action": "accept", "content": {}}}
        attempts: dict[str, Any] = {"tasks/get": {}, "tasks/update": {"inputResponses": accepted}, "tasks/cancel": {}}
        for method, more in attempts.items():
            reply = await peer.send(method, taskId=handle, **more)
            assert reply["error"]["message"] == "Task not found"
        # It is still there for its user, and a task beside it is one.
        assert "Delete" in (await Browser(url, "ann").open(link_in(asked))).text
        task = await peer.call("background")
        assert "size" in json.dumps(await peer.asked(task["taskId"], "size"))
    assert PAID == []
