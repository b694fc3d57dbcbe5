"""Agents that try to answer a question for a human: by texts in requests, by an HTTP tool, and as clients of tasks."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from roundtrip import Context, Elicit, Pages, Server
from tests.kit.hosts import hosted
from tests.kit.page_users import (
    BASE,
    KEY,
    Browser,
    client_of,
    handle_in,
    link_in,
    reader,
    text_of,
    user_of,
)
from tests.kit.peer import Peer
from tests.kit.programs import needs
from tests.kit.stores import Servers, ledger_at, place_of, servers

pytestmark = pytest.mark.anyio

PAID: list[str] = []
SECRETS = ("Delete", "How many?", "A color?")
NAMES = ("confirm:pay", "size", "color", "review")
RUNGS = ("form", "url", "link", "model")


def shop() -> Server[Any]:
    pages = Pages(base_url=BASE, authenticate=reader, wait=0.2)
    server = Server[Any]("shop", keys=[KEY], principal=user_of, pages=pages, ladder=RUNGS)

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


async def test_agent_with_an_http_tool_sees_no_question() -> None:
    PAID.clear()
    async with hosted(shop().streamable_http_app()) as url, client_of(url) as client:
        asked = await client.call_tool("pay", {"what": "all"})
        link = link_in(asked)
        for user in (None, "agent"):
            agent = Browser(url, user)
            page = await agent.open(link)
            assert page.status_code in (401, 404)
            assert "Delete" not in page.text
        async with httpx.AsyncClient(headers={"origin": BASE, "sec-fetch-site": "same-origin"}) as http:
            for body in ({"decision": "answer"}, {"decision": "answer", "token": "x"}, {}):
                posted = await http.post(link.replace(BASE, url), data=body)
                assert posted.status_code == 401
        page = (await Browser(url, "ann").open(link)).text
        # A form that the user has opened is of no use to others.
        assert (await Browser(url, "agent").send(link, page)).status_code == 404
    assert PAID == []


async def test_handle_of_a_call_is_no_task() -> None:
    PAID.clear()
    async with (
        hosted(shop().streamable_http_app()) as url,
        client_of(url) as client,
        httpx.AsyncClient(headers={"x-user": "ann"}) as http,
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


@pytest.fixture(scope="module")
def started() -> Generator[Servers]:
    with servers() as found:
        yield found


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("redis", marks=needs("redis"))])
async def test_equal_calls_on_two_instances_run_one_body_each(kind: str, started: Servers, tmp_path: Path) -> None:
    """Agents of one user call, answer and continue at once."""
    place, bodies, handles = place_of(kind, started, tmp_path), list[str](), set[str]()

    def adder() -> Server[Any]:
        server = Server[Any]("race", keys=[KEY], principal=user_of, ladder=["model"], ledger=ledger_at(place))

        @server.tool(exactly_once=True)
        async def add(ctx: Context) -> str:
            """Add two numbers."""
            first = await ctx.ask("first", "First?", int, answered_by="anyone")
            second = await ctx.ask("second", "Second?", int, answered_by="anyone")
            bodies.append(ctx.call.id)
            return str(first + second)

        return server

    async with hosted(adder().streamable_http_app()) as one, hosted(adder().streamable_http_app()) as two:
        begun: list[str] = []

        async def begin(url: str) -> None:
            async with client_of(url) as client:
                begun.append(handle_in(await client.call_tool("add", {})))

        async with anyio.create_task_group() as group:
            for url in (one, two) * 3:
                group.start_soon(begin, url)
        assert len(set(begun)) == 1

        async def agent(url: str) -> None:
            async with client_of(url) as client:
                result = await client.call_tool("add", {})
                if "handle=" not in text_of(result):
                    return
                handle = handle_in(result)
                handles.add(handle)
                for name in ("first", "second"):
                    await client.call_tool("continue_call", {"handle": handle, "answers": {name: 2}})

        async with anyio.create_task_group() as group:
            for url in (one, two) * 3:
                group.start_soon(agent, url)
        async with client_of(two) as client:
            ends = [text_of(await client.call_tool("continue_call", {"handle": handle})) for handle in handles]
    assert set(ends) == {"4"}
    assert sorted(bodies) == sorted({handle.partition(".")[0] for handle in handles})
