"""The shape of question rounds on the wire: their requests, their content, and their keys."""

from typing import Annotated, Any

import pytest
from mcp_types import CreateMessageResult, InputRequiredResult, ListRootsResult
from mcp_types.methods import INPUT_REQUIRED_METHODS

from roundtrip import Context, Elicit, ListRoots, Resolve, Sample, Server
from roundtrip.testing import served
from tests.interaction.protocol.by_hand import by_hand
from tests.kit.shops import KEY, Choice
from tests.kit.wire import Json, accept, wire

pytestmark = pytest.mark.anyio


def asker(message: str) -> Any:
    async def ask() -> Elicit[Choice]:
        return Elicit(message, Choice)

    return ask


async def blurb() -> Sample:
    return Sample("Praise Dune", max_tokens=10)


async def shelves() -> ListRoots:
    return ListRoots()


def shop() -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY])

    @server.tool()
    async def order(
        first: Annotated[Choice, Resolve(asker("First?"))],
        second: Annotated[Choice, Resolve(asker("Second?"))],
        third: Annotated[Choice, Resolve(asker("Third?"), name="third")],
        text: Annotated[CreateMessageResult, Resolve(blurb)],
        roots: Annotated[ListRootsResult, Resolve(shelves)],
    ) -> str:
        return "done"

    @server.prompt()
    async def review(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        return by_hand(None) if not ctx.input_responses else "done"

    @server.resource("page://{name}")
    async def page(name: str, ctx: Context[Any, Any]) -> str | InputRequiredResult:
        return InputRequiredResult(request_state="state") if ctx.request_state is None else "done"

    return server


OTHERS: list[tuple[str, Json]] = [
    ("server/discover", {}),
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "x", "value": ""}}),
]


async def test_only_three_methods_ever_answer_with_questions() -> None:
    """Shows S1."""
    assert frozenset({"tools/call", "prompts/get", "resources/read"}) == INPUT_REQUIRED_METHODS
    async with served(shop(), stateless_http=True) as url, wire(url) as post:
        answers = [await post.post(method, params) for method, params in OTHERS]
        # A state and answers make no difference to a method that has no use for them.
        extra: Json = {"requestState": "r3s.x", "inputResponses": {"q": accept(ok=True)}}
        answers += [await post.post(method, {**params, **extra}) for method, params in OTHERS]
        asking = [
            await post.post("tools/call", {"name": "order", "arguments": {}}),
            await post.post("prompts/get", {"name": "review"}),
            await post.post("resources/read", {"uri": "page://one"}),
        ]
    assert all(answer.get("result", {}).get("resultType") != "input_required" for answer in answers)
    assert [answer["result"]["resultType"] for answer in asking] == ["input_required"] * 3


async def test_question_round_carries_questions_state_and_its_type() -> None:
    """Shows S2 and S3."""
    async with served(shop(), stateless_http=True) as url, wire(url) as post:
        result = await post.result("order")
    assert result["resultType"] == "input_required"
    assert {key: request["method"] for key, request in result["inputRequests"].items()} == {
        "ask@first": "elicitation/create",
        "ask@second": "elicitation/create",
        "third": "elicitation/create",
        "blurb": "sampling/createMessage",
        "shelves": "roots/list",
    }
    token = result["requestState"]
    assert token
    assert token.isascii()
    assert token.isprintable()
    assert " " not in token
