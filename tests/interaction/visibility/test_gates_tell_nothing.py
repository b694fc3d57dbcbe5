"""A hidden item gets the same reply as an unknown one, also on the wire: tools, prompts, resources and templates."""

import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import pytest
from mcp.client import Client
from mcp.server.caching import CacheHint
from mcp.shared.exceptions import MCPError
from mcp_types import Completion, PromptReference, ResourceTemplateReference
from pydantic import Field

from roundtrip import Depends, Server
from roundtrip.testing import Era, served
from tests.interaction.visibility.gates import Switch, by_title, listed, prompted, read, same, saying, tools
from tests.kit.players import connect, text_of
from tests.kit.shops import KEY
from tests.kit.wire import Json, wire

pytestmark = pytest.mark.anyio


def library(*, on: bool) -> Server[Any]:
    server, gate = Server[Any]("library", keys=[KEY]), Switch(on=on)

    @server.tool(enabled=gate)
    def burn(title: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Title"})]) -> str:
        return f"burnt {title}"

    @server.prompt(enabled=gate)
    def audit(title: str) -> str:
        return f"Audit {title}"

    @server.resource("shelf://closed", enabled=gate)
    def closed() -> str:
        return "closed"

    @server.resource("secret://{title}", enabled=gate)
    def secret(title: str) -> str:
        return f"secret {title}"

    @server.resource("book://{title}")
    def book(title: str) -> str:
        return f"book {title}"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Completion | None:
        del argument, context
        return Completion(values=[str(ref)])

    return server


REQUESTS: list[tuple[str, Json, dict[str, str], str, str]] = [
    ("tools/call", {"name": "NAME", "arguments": {"title": "x"}}, {"mcp-param-title": "x"}, "burn", "burm"),
    ("tools/call", {"name": "NAME", "arguments": {"title": "x"}}, {"mcp-param-title": "y"}, "burn", "burm"),
    ("tools/call", {"name": "NAME", "arguments": {"title": "x"}}, {}, "burn", "burm"),
    ("tools/call", {"name": "NAME", "arguments": {"no": "x"}}, {"mcp-param-title": "y"}, "burn", "burm"),
    ("tools/call", {"name": "NAME", "arguments": {}, "requestState": "x"}, {}, "burn", "burm"),
    ("prompts/get", {"name": "NAME", "arguments": {"title": "x"}}, {}, "audit", "audii"),
    ("prompts/get", {"name": "NAME", "arguments": {}}, {}, "audit", "audii"),
    ("resources/read", {"uri": "NAME"}, {}, "shelf://closed", "shelf://clossd"),
    ("resources/read", {"uri": "NAME"}, {}, "secret://dune", "secrat://dune"),
    ("resources/read", {"uri": "NAME"}, {}, "secret://..%2Fdune", "secrat://..%2Fdune"),
]


async def test_gated_and_missing_items_are_indistinguishable_on_the_wire() -> None:
    async def answer(post: Any, request: tuple[str, Json, dict[str, str], str, str], name: str) -> str:
        method, params, headers, _, _ = request
        sent = json.loads(json.dumps(params).replace("NAME", name))
        return json.dumps({**await post.post(method, sent, headers=headers), "id": 0}).replace(name, "NAME")

    async with served(library(on=False), stateless_http=True) as url, wire(url) as post:
        answers = [(one, await answer(post, one, one[3]), await answer(post, one, one[4])) for one in REQUESTS]
    assert [request for request, hidden, unknown in answers if hidden != unknown] == []


async def test_lists_omit_gated_items_completely() -> None:
    async with connect(library(on=True), Era.RETRY) as client:
        assert await tools(client) == ["burn"]
        assert await listed(client) == {
            "prompts": ["audit"],
            "resources": ["shelf://closed"],
            "templates": ["secret://{title}", "book://{title}"],
        }
    async with connect(library(on=False), Era.RETRY) as client:
        assert await tools(client) == []
        assert await listed(client) == {"prompts": [], "resources": [], "templates": ["book://{title}"]}
    bare = Server[Any]("library")
    bare.add_tool(saying("x"), "x", enabled=Switch(on=False))
    async with served(bare, stateless_http=True) as url, wire(url) as post:
        assert (await post.post("tools/list"))["result"]["tools"] == []
        discovered = json.dumps(await post.post("server/discover"))
    async with served(Server[Any]("library"), stateless_http=True) as url, wire(url) as post:
        await post.post("tools/list")
        assert discovered == json.dumps(await post.post("server/discover"))


async def test_headers_are_checked_after_an_open_gate() -> None:
    params = {"name": "burn", "arguments": {"title": "x"}}
    plain = Server[Any]("library")

    @plain.tool()
    def burn(title: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Title"})]) -> str:
        return f"burnt {title}"

    answers: list[list[Json]] = []
    for server in (library(on=True), plain):
        async with served(server, stateless_http=True) as url, wire(url) as post:
            answers.append(
                [
                    await post.post("tools/call", params, headers=headers)
                    for headers in ({}, {"mcp-param-title": "y"}, {"mcp-param-title": "x"})
                ]
            )
    assert answers[0][:2] == answers[1][:2]
    assert answers[0][0]["error"]["code"] == -32020
    assert answers[0][2]["result"]["content"] == answers[1][2]["result"]["content"]


async def test_headers_are_not_checked_against_nested_tools() -> None:
    server = library(on=True)

    @server.tool
    async def outer(title: str) -> str:
        return text_of(await server.call_tool("burn", {"title": title}))

    async with served(server, stateless_http=True) as url, wire(url) as post:
        result = await post.result("outer", {"title": "x"})
    assert result["content"][0]["text"] == "burnt x"


async def test_completion_reveals_neither_gated_nor_missing_items() -> None:
    title = {"name": "title", "value": ""}

    async def completed(client: Client, *refs: PromptReference | ResourceTemplateReference) -> list[int]:
        return [len((await client.complete(ref, title)).completion.values) for ref in refs]

    hidden = (
        PromptReference(name="audit"),
        ResourceTemplateReference(uri="secret://{title}"),
        ResourceTemplateReference(uri="secret://dune"),
    )
    unknown = (PromptReference(name="audii"), ResourceTemplateReference(uri="secrat://{title}"))
    shown = ResourceTemplateReference(uri="book://{title}")
    async with connect(library(on=False), Era.RETRY) as client:
        assert await completed(client, *hidden, *unknown) == [0] * 5
        assert await completed(client, shown) == [1]
    async with connect(library(on=True), Era.RETRY) as client:
        assert await completed(client, *hidden) == [1] * 3
        assert await completed(client, *unknown, shown) == [0, 0, 1]


async def test_caller_dependent_lists_are_never_cached_for_others() -> None:
    requests: list[tuple[Any, Json]] = [
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "shelf://closed"}),
        ("resources/read", {"uri": "book://dune"}),
    ]
    hints = {method: CacheHint(ttl_ms=60_000, scope="public") for method, _ in requests}
    gated, plain = Server[Any]("library", cache_hints=hints), Server[Any]("library", cache_hints=hints)
    for server, gate, cached in ((gated, Switch(), ("private", 0)), (plain, True, ("public", 60_000))):
        server.add_tool(saying("x"), "x", enabled=gate)
        server.prompt("x", enabled=gate)(lambda: "x")
        server.resource("shelf://closed", name="x", enabled=gate)(lambda: "x")
        server.resource("book://{title}", name="book")(by_title)
        async with served(server, stateless_http=True) as url, wire(url) as post:
            results = [(await post.post(method, params))["result"] for method, params in requests]
        assert [(result["cacheScope"], result["ttlMs"]) for result in results] == [cached] * len(requests)


# Prompts, resources and templates.


async def test_other_matching_resource_serves_behind_a_closed_gate() -> None:
    server, switches = Server[Any]("layers"), [Switch(), Switch(), Switch()]

    @server.resource("file:///notes", enabled=switches[0])
    def notes() -> str:
        return "the resource"

    @server.resource("file:///{name}", enabled=switches[1])
    def by_name(name: str) -> str:
        return f"the first template: {name}"

    @server.resource("file:///{+path}", enabled=switches[2])
    def by_path(path: str) -> str:
        return f"the last template: {path}"

    async with connect(server, Era.RETRY) as client:
        assert await read(client, "file:///notes") == "the resource"
        assert [switch.asked for switch in switches] == [1, 0, 0]
        switches[0].on = False
        assert await read(client, "file:///notes") == "the first template: notes"
        switches[1].on = False
        assert await read(client, "file:///notes") == "the last template: notes"
        switches[2].on = False
        with pytest.raises(MCPError, match="Unknown resource"):
            await client.read_resource("file:///notes")


async def test_prompts_and_templates_share_what_their_gates_found_and_entered() -> None:
    server, log = Server[Any]("library"), list[str]()

    async def session() -> AsyncGenerator[str]:
        log.append("enter")
        try:
            yield "session"
        except BaseException as error:
            log.append(type(error).__name__)
            raise
        log.append("leave")

    gate = Depends(same, session)

    @server.prompt(enabled=gate)
    def audit(session: str = Depends(session)) -> str:
        return session

    @server.prompt(enabled=gate)
    def broken() -> str:
        raise ZeroDivisionError

    @server.resource("secret://{title}", enabled=gate)
    def secret(title: str, session: str = Depends(session)) -> str:
        if title == "broken":
            raise ZeroDivisionError
        return session

    @server.resource("plain://{title}", enabled=gate)
    def plain(title: str) -> str:
        return title

    @server.resource("shelf://closed", enabled=gate)
    def closed() -> str:
        return "closed"

    async with connect(server, Era.RETRY) as client:
        assert await prompted(client, "audit") == "session"
        assert await read(client, "secret://dune") == "session"
        assert await read(client, "plain://dune") == "dune"
        assert await read(client, "shelf://closed") == "closed"
        assert log == ["enter", "leave"] * 4
        log.clear()
        for attempt in (client.get_prompt("broken"), client.read_resource("secret://broken")):
            with pytest.raises(MCPError):
                await attempt
        assert log == ["enter", "ZeroDivisionError"] * 2
        log.clear()
        assert len((await client.list_prompts()).prompts) == 2
        assert log == ["enter", "leave"]
