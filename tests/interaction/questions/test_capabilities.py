"""A server asks only questions that the client declared, and the error names the missing capability."""

from typing import Annotated, Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageResult, CreateMessageResultWithTools, ListRootsResult, Tool
from pydantic import BaseModel

from roundtrip import Elicit, ElicitationResult, Event, ListRoots, Resolve, Sample, Server, State
from roundtrip.testing import Era, Steps, served
from tests.kit.players import sample
from tests.kit.wire import EVERYTHING, Json, wire

pytestmark = pytest.mark.anyio


class Choice(BaseModel):
    ok: bool


async def form() -> Elicit[Choice]:
    return Elicit("Sure?", Choice)


async def model() -> Sample:
    return Sample("Hello", max_tokens=5)


async def model_with_tools() -> Sample:
    return Sample("Hello", max_tokens=5, tools=[Tool(name="t", input_schema={"type": "object"})])


async def shelves() -> ListRoots:
    return ListRoots()


def shop(trace: Steps | None = None) -> Server[Any]:
    server = Server[Any]("shop", trace=trace)

    @server.tool()
    async def ask_form(answer: Annotated[Choice, Resolve(form)]) -> str:
        return "done"

    @server.tool()
    async def ask_outcome(answer: Annotated[ElicitationResult[Choice], Resolve(form)]) -> str:
        return "done"

    @server.tool()
    async def ask_model(answer: Annotated[CreateMessageResult, Resolve(model)]) -> str:
        return "done"

    @server.tool()
    async def ask_model_with_tools(
        answer: Annotated[CreateMessageResultWithTools, Resolve(model_with_tools)],
    ) -> str:
        return "done"

    @server.tool()
    async def ask_roots(answer: Annotated[ListRootsResult, Resolve(shelves)]) -> str:
        return "done"

    @server.tool()
    async def ask_both(
        choice: Annotated[Choice, Resolve(form)], answer: Annotated[ListRootsResult, Resolve(shelves)]
    ) -> str:
        return "done"

    return server


FORM: Json = {"elicitation": {"form": {}}}
LACKING: list[tuple[str, Json, Json]] = [
    ("ask_form", {}, FORM),
    ("ask_form", {"sampling": {}, "roots": {}}, FORM),
    ("ask_form", {"elicitation": {"url": {}}}, FORM),
    ("ask_outcome", {}, FORM),
    ("ask_model", FORM, {"sampling": {}}),
    ("ask_model_with_tools", {}, {"sampling": {"tools": {}}}),
    ("ask_model_with_tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
    ("ask_roots", FORM, {"roots": {}}),
    ("ask_both", FORM, {"roots": {}}),
]


@pytest.mark.parametrize(("tool", "declared", "required"), LACKING)
async def test_question_beyond_declared_capabilities_names_the_missing_one(
    tool: str, declared: Json, required: Json
) -> None:
    """Shows S6."""
    trace = Steps()
    async with served(shop(trace), json_response=True) as url, wire(url) as post:
        answer = await post.post("tools/call", {"name": tool, "arguments": {}}, capabilities=declared)
    assert answer["error"]["code"] == -32021
    assert answer["error"]["data"] == {"requiredCapabilities": required}
    assert trace.states == [State.RECEIVED, State.RESOLVING, State.REJECTED]


ENOUGH: list[tuple[str, Json, str]] = [
    ("ask_form", {"elicitation": {}}, "elicitation/create"),
    ("ask_form", {"elicitation": {"form": {}, "url": {}}}, "elicitation/create"),
    ("ask_model", {"sampling": {}}, "sampling/createMessage"),
    ("ask_model_with_tools", {"sampling": {"tools": {}}}, "sampling/createMessage"),
    ("ask_roots", {"roots": {}}, "roots/list"),
]


@pytest.mark.parametrize(("tool", "declared", "method"), ENOUGH)
async def test_client_is_asked_for_its_declared_capabilities(tool: str, declared: Json, method: str) -> None:
    """Shows S6. A bare `elicitation` means forms."""
    async with served(shop(), json_response=True) as url, wire(url) as post:
        answer = await post.post("tools/call", {"name": tool, "arguments": {}}, capabilities=declared)
    (request,) = answer["result"]["inputRequests"].values()
    assert request["method"] == method


async def test_capabilities_of_the_current_request_count() -> None:
    """Shows S6."""
    trace = Steps()
    async with served(shop(trace), json_response=True) as url, wire(url, capabilities=EVERYTHING) as post:
        state = (await post.result("ask_form"))["requestState"]
        again: Json = {"name": "ask_form", "arguments": {}, "requestState": state}
        refused = await post.post("tools/call", again, capabilities={})
        # Nothing is lost: the same token still serves a request that may be asked.
        asked = await post.post("tools/call", again)
    assert refused["error"]["code"] == -32021
    assert "inputRequests" in asked["result"]
    assert trace.events.count(Event.REJECT) == 1


@pytest.mark.parametrize(("tool", "capability"), [("ask_form", "elicitation"), ("ask_roots", "roots")])
async def test_client_without_callback_gets_equal_errors_on_both_eras(era: Era, tool: str, capability: str) -> None:
    """Shows S6."""
    caught: list[MCPError] = []
    async with Client(shop(), mode=era.value, sampling_callback=sample) as client:
        try:
            await client.call_tool(tool)
        except MCPError as error:
            caught.append(error)
    (error,) = caught
    assert error.code == -32021
    assert list(error.data["requiredCapabilities"]) == [capability]
