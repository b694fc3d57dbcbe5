"""A server asks only questions that the client declared, and the error names the missing capability."""

from typing import Annotated, Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageResult, CreateMessageResultWithTools, ListRootsResult, Tool

from roundtrip import Event, ListRoots, Resolve, Sample, Server, State
from roundtrip.testing import Era, Steps, served
from tests.kit.players import sample
from tests.kit.shops import Choice, server_with, sure
from tests.kit.wire import EVERYTHING, Json, wire

pytestmark = pytest.mark.anyio


async def model() -> Sample:
    return Sample("Hello", max_tokens=5)


async def model_with_tools() -> Sample:
    return Sample("Hello", max_tokens=5, tools=[Tool(name="t", input_schema={"type": "object"})])


async def shelves() -> ListRoots:
    return ListRoots()


async def ask_form(answer: Annotated[Choice, Resolve(sure)]) -> str:
    return "done"


async def ask_model(answer: Annotated[CreateMessageResult, Resolve(model)]) -> str:
    return "done"


async def ask_model_with_tools(answer: Annotated[CreateMessageResultWithTools, Resolve(model_with_tools)]) -> str:
    return "done"


async def ask_roots(answer: Annotated[ListRootsResult, Resolve(shelves)]) -> str:
    return "done"


async def ask_both(
    choice: Annotated[Choice, Resolve(sure)], answer: Annotated[ListRootsResult, Resolve(shelves)]
) -> str:
    return "done"


def shop(trace: Steps | None = None) -> Server[Any]:
    tools = (ask_form, ask_model, ask_model_with_tools, ask_roots, ask_both)
    return server_with(*tools, keys=None, trace=trace)


FORM: Json = {"elicitation": {"form": {}}}
LACKING: list[tuple[str, Json, Json]] = [
    ("ask_form", {}, FORM),
    ("ask_form", {"sampling": {}, "roots": {}}, FORM),
    ("ask_form", {"elicitation": {"url": {}}}, FORM),
    ("ask_model", FORM, {"sampling": {}}),
    ("ask_model_with_tools", {}, {"sampling": {"tools": {}}}),
    ("ask_model_with_tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
    ("ask_roots", FORM, {"roots": {}}),
    ("ask_both", FORM, {"roots": {}}),
]


async def test_question_beyond_declared_capabilities_names_the_missing_one() -> None:
    """Shows S6."""
    trace = Steps()
    async with served(shop(trace), json_response=True) as url, wire(url) as post:
        errors = [
            (await post.post("tools/call", {"name": tool, "arguments": {}}, capabilities=declared))["error"]
            for tool, declared, _ in LACKING
        ]
    assert [(error["code"], error["data"]) for error in errors] == [
        (-32021, {"requiredCapabilities": required}) for _, _, required in LACKING
    ]
    assert trace.states == [State.RECEIVED, *[State.RESOLVING, State.REJECTED] * len(LACKING)]


ENOUGH: list[tuple[str, Json, str]] = [
    ("ask_form", {"elicitation": {}}, "elicitation/create"),
    ("ask_form", {"elicitation": {"form": {}, "url": {}}}, "elicitation/create"),
    ("ask_model", {"sampling": {}}, "sampling/createMessage"),
    ("ask_model_with_tools", {"sampling": {"tools": {}}}, "sampling/createMessage"),
    ("ask_roots", {"roots": {}}, "roots/list"),
]


async def test_client_is_asked_for_its_declared_capabilities() -> None:
    """Shows S6. A bare `elicitation` means forms."""
    methods: list[list[str]] = []
    async with served(shop(), json_response=True) as url, wire(url) as post:
        for tool, declared, _ in ENOUGH:
            answer = await post.post("tools/call", {"name": tool, "arguments": {}}, capabilities=declared)
            methods.append([request["method"] for request in answer["result"]["inputRequests"].values()])
    assert methods == [[method] for _, _, method in ENOUGH]


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
    async with Client(shop(), mode=era.value, sampling_callback=sample) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool(tool)
    assert caught.value.code == -32021
    assert list(caught.value.data["requiredCapabilities"]) == [capability]
