"""What a body asks of the client itself: a completion of its model, in words or as a value, and its roots."""

from typing import Any

import pytest
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

from roundtrip import Context, Event, State
from tests.interaction.bodies.shops import shop
from tests.players import Era, Trace, connect, roots, sample, text_of

pytestmark = pytest.mark.anyio


class Review(BaseModel):
    stars: int
    words: str


class Model:
    """A model that says what it is told to say, and keeps what it was asked."""

    def __init__(self, *replies: str) -> None:
        self._replies = iter(replies)
        self.asked: list[CreateMessageRequestParams] = []

    async def __call__(self, context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        del context
        self.asked.append(params)
        return CreateMessageResult(
            role="assistant", content=TextContent(type="text", text=next(self._replies)), model="m"
        )


async def review(ctx: Context[Any, Any]) -> str:
    result = await ctx.sample("Review Dune", result_type=Review, system_prompt="Be brief.")
    return f"{result.result.stars}: {result.result.words}"


async def test_a_sample_gives_text_and_the_whole_message(era: Era) -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        first = await ctx.sample("Praise Dune", max_tokens=50)
        said = SamplingMessage(role="user", content=TextContent(type="text", text="Praise Emma"))
        second = await ctx.sample([said], key="second")
        return f"{first.text}, {first.result == first.text}, {first.message.model}, {second.text}"

    async with connect(shop(body), era, sampling_callback=sample) as client:
        result = await client.call_tool("order")
    assert text_of(result) == "echo: Praise Dune, True, m, echo: Praise Emma"


async def test_a_sample_of_a_type_tells_the_model_its_schema_and_gives_the_value(era: Era) -> None:
    model = Model('```json\n{"stars": 5, "words": "sandy"}\n```')
    async with connect(shop(review), era, sampling_callback=model) as client:
        assert text_of(await client.call_tool("order")) == "5: sandy"
    (params,) = model.asked
    assert (params.system_prompt or "").startswith("Be brief.\n\nAnswer with JSON that fits this schema")
    assert '"stars"' in (params.system_prompt or "")


async def test_an_answer_of_another_shape_is_asked_for_again_with_the_reason(era: Era) -> None:
    trace = Trace()
    model = Model("I liked it", '{"stars": "many", "words": "sandy"}', '{"stars": 4, "words": "sandy"}')
    async with connect(shop(review, trace=trace), era, sampling_callback=model) as client:
        assert text_of(await client.call_tool("order")) == "4: sandy"
    last = model.asked[-1].messages[-1].content
    assert isinstance(last, TextContent)
    assert last.text.startswith("The last answer was not valid: stars")
    assert [set(round.values()) for round in trace.asked] == [{"new"}, {"invalid"}, {"invalid"}]


async def test_a_model_that_never_answers_in_shape_ends_the_call(era: Era) -> None:
    trace = Trace()
    model = Model("no", "no", "no", "no")
    async with connect(shop(review, trace=trace), era, sampling_callback=model) as client:
        result = await client.call_tool("order")
    assert "was answered invalidly 3 times" in text_of(result)
    assert len(model.asked) == 3
    assert trace.path[-1] is State.FAILED


async def test_a_sample_to_a_client_without_a_model_is_refused_naming_the_capability(era: Era) -> None:
    """Shows S6."""
    trace = Trace()
    async with connect(shop(review, trace=trace), era) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("order")
    assert refused.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refused.value.error.data == {"requiredCapabilities": {"sampling": {}}}
    assert trace.events[-1] is Event.REJECT


async def test_a_body_lists_the_clients_roots(era: Era) -> None:
    async def body(ctx: Context[Any, Any]) -> list[str]:
        return [str(root.uri) for root in (await ctx.list_roots()).roots]

    async with connect(shop(body), era, list_roots_callback=roots) as client:
        result = await client.call_tool("order")
    assert result.structured_content == {"result": ["file:///home/user/books"]}
