"""Tool calls are answered on 2026-07-28 by a shorter way than the SDK's handlers take, and say the same on the wire."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import httpx
import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    Annotations,
    CallToolResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, Field

from roundtrip import Audio, Elicit, ElicitUrl, Image, ListRoots, Resolve, Sample, Server, ToolResult
from roundtrip.server.tool_calls import ToolCalls
from tests.interaction.protocol.by_hand import by_hand
from tests.kit.wire import EVERYTHING, Json, Wire

pytestmark = pytest.mark.anyio


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Order(BaseModel):
    """Order of a customer."""

    title: str = Field(description="Of the book", min_length=2, max_length=40)
    copies: int = Field(default=1, ge=1, le=9)
    price: float | None = None
    gift: bool = False
    colour: Colour = Colour.RED
    size: Literal["s", "m"] = "s"
    when: date | None = None
    mail: Annotated[str, Field(json_schema_extra={"format": "email"})] = "a@b.example"


@dataclass
class Point:
    x: int
    y: float


def _asking(question: Callable[[], Any]) -> Callable[..., Any]:
    async def ask() -> Any:
        return question()

    async def tool(answer: Annotated[Any, Resolve(ask)]) -> str:
        return str(answer)

    return tool


def _returning(value: Callable[[], Any], annotation: Any = Any) -> Callable[..., Any]:
    async def tool() -> Any:
        return value()

    tool.__annotations__["return"] = annotation
    return tool


def _raising(error: Exception) -> Callable[..., Any]:
    async def tool() -> str:
        raise error

    return tool


async def _picky(number: int) -> str:
    return str(number)


async def _waiting(one: Annotated[Any, Resolve(lambda: Elicit("One?", Order))]) -> str:
    raise AssertionError(one)


TOOLS: dict[str, Callable[..., Any]] = {
    "a text": _returning(lambda: "hello", str),
    "an odd text": _returning(lambda: '\x00\u2028"é\U0001f600</script>', str),
    "a number": _returning(lambda: 7, int),
    "nothing": _returning(lambda: None),
    "an untyped object": _returning(lambda: {"a": None, "b": [1, {"c": None}]}),
    "an object": _returning(lambda: {"a": None}, dict[str, Any]),
    "several texts": _returning(lambda: ["a", "b"]),
    "a model": _returning(lambda: Order(title="Dune"), Order),
    "a dataclass": _returning(lambda: Point(1, 2.5), Point),
    "an image": _returning(lambda: Image(data=b"png", format="png")),
    "a sound and a text": _returning(lambda: ["a", Audio(data=b"wav", format="wav")]),
    "a block with annotations": _returning(lambda: TextContent(text="a", annotations=Annotations(priority=0.5))),
    "a block with metadata": _returning(lambda: TextContent(text="a", _meta={"k": None})),
    "a whole result": _returning(lambda: CallToolResult(content=[TextContent(text="a")], _meta={"k": 1})),
    "a whole result without content": _returning(lambda: CallToolResult(content=[], structured_content={"a": 1})),
    "a result with a block of another time": _returning(
        lambda: CallToolResult.model_validate({"content": [{"type": "text", "text": "a", "later": 1}], "later": 2})
    ),
    "a tool result": _returning(lambda: ToolResult(content="x", structured_content={"a": 1}, meta={"k": 1})),
    "a crash": _raising(ValueError("no")),
    "a foreseen failure": _raising(ToolError("not today")),
    "an error of the protocol": _raising(MCPError(code=-32050, message="off", data={"why": 1})),
    "wrong arguments": _picky,
    "questions by hand": _returning(lambda: by_hand("mine")),
    "a form of a model": _asking(lambda: Elicit("What do you order?", Order)),
    "a form of one value": _asking(lambda: Elicit("Sure?", bool)),
    "a choice": _asking(lambda: Elicit("Which?", {"a": "The first", "b": "The second"})),
    "a list of an enum": _asking(lambda: Elicit("Which?", list[Colour])),
    "a page": _asking(lambda: ElicitUrl("Pay", "https://pay.example/x")),
    "a sample": _asking(
        lambda: Sample([SamplingMessage(role="user", content=TextContent(text="hi"))], max_tokens=5, temperature=0.5)
    ),
    "the roots": _asking(ListRoots),
    "a form beside others": _waiting,
}


async def _another(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """A middleware that does nothing, and keeps ours from being the last."""
    return await call_next(ctx)


def _tool_name(name: str) -> str:
    return name.replace(" ", "_").replace(",", "")


def _server(*, short: bool) -> Server[Any]:
    server = Server[Any](
        "shapes", title="Shapes", version="1.2", keys=[b"k" * 32], instructions="none", website_url="https://a.example"
    )
    for name, fn in TOOLS.items():
        server.add_tool(fn, _tool_name(name))
    assert isinstance(server.middleware[-1], ToolCalls)
    if not short:
        server.middleware.append(_another)
    return server


def _without_what_differs_by_call(answer: Json) -> Json:
    result = answer.get("result", {})
    if "requestState" in result:
        assert result.pop("requestState").startswith("r")
    for request in result.get("inputRequests", {}).values():
        request.get("params", {}).pop("elicitationId", None)
    return answer


@asynccontextmanager
async def _posting(server: Server[Any]) -> AsyncGenerator[Wire]:
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    async with server.session_manager.run(), httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        yield Wire(client, "http://127.0.0.1:8000/mcp", EVERYTHING)


@asynccontextmanager
async def _both_ways() -> AsyncGenerator[tuple[Wire, Wire]]:
    async with _posting(_server(short=True)) as short, _posting(_server(short=False)) as long:
        yield short, long


async def test_calls_are_answered_as_the_sdk_would_answer() -> None:
    answers: list[dict[str, Json]] = []
    async with _both_ways() as ways:
        for way in ways:
            answers.append({})
            for name in TOOLS:
                arguments = {"number": "no number"} if name == "wrong arguments" else {}
                answer = await way.call(_tool_name(name), arguments)
                answers[-1][name] = _without_what_differs_by_call(answer)

    assert answers[0] == answers[1]


MALFORMED: dict[str, Json] = {
    "name": {"name": 7},
    "arguments": {"name": "a_text", "arguments": []},
    "responses": {"name": "a_text", "inputResponses": {"k": 3}},
    "response": {"name": "a_text", "inputResponses": {"k": {"action": "nod"}}},
    "state": {"name": "a_text", "requestState": 3},
    "unknown": {"name": "none"},
}


async def test_malformed_calls_are_rejected_like_by_the_sdk() -> None:
    async with _both_ways() as ways:
        ours, theirs = [
            {what: await way.post("tools/call", params) for what, params in MALFORMED.items()} for way in ways
        ]

    assert ours == theirs
    assert [what for what, answer in ours.items() if "error" not in answer and not answer["result"]["isError"]] == []


async def test_middleware_that_is_added_later_sees_every_call() -> None:
    server = _server(short=True)
    seen: list[HandlerResult] = []

    async def watching(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        seen.append(await call_next(ctx))
        return seen[-1]

    server.middleware.append(watching)
    async with _posting(server) as post:
        await post.result("a_text")

    assert [result["content"] for result in seen if isinstance(result, dict)] == [[{"type": "text", "text": "hello"}]]


async def test_subclass_overriding_call_tool_serves_every_call() -> None:
    class Counting(Server[Any]):
        calls = 0

        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None, **more: Any) -> Any:
            self.calls += 1
            return await super().call_tool(name, arguments, context, **more)

    server = Counting("counting")
    server.add_tool(TOOLS["a text"], "a_text")
    async with _posting(server) as post:
        await post.result("a_text")

    assert server.calls == 1
