"""Requests of a body to the client itself: a completion of its model, as text or as a value, and its roots."""

import re
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CreateMessageRequestParams,
    Root,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, FileUrl

from roundtrip import Context, Event
from roundtrip.testing import Answers, Era, Steps, User
from tests.interaction.bodies.shops import shop

pytestmark = pytest.mark.anyio


class Review(BaseModel):
    stars: int
    words: str


async def review(ctx: Context[Any, Any]) -> str:
    result = await ctx.sample("Review Dune", result_type=Review, system_prompt="Be brief.")
    return f"{result.result.stars}: {result.result.words}"


async def test_a_sample_gives_text_and_the_whole_message() -> None:
    async def body(ctx: Context[Any, Any]) -> str:
        first = await ctx.sample("Praise Dune", max_tokens=50)
        said = SamplingMessage(role="user", content=TextContent(type="text", text="Praise Emma"))
        second = await ctx.sample([said], name="second")
        return f"{first.text}, {first.result == first.text}, {first.message.model}, {second.text}"

    answers: Answers = {re.compile("Praise Dune"): "sandy", "second": "witty"}
    call = await User(shop(body), answers, era=Era.RETRY).call("order")
    assert call.text == "sandy, True, scripted, witty"
    assert call.asked == ["Praise Dune", "Praise Emma"]


async def test_typed_sample_sends_its_schema_and_returns_the_value(era: Era) -> None:
    answers: Answers = {re.compile("Review"): '```json\n{"stars": 5, "words": "sandy"}\n```'}
    call = await User(shop(review), answers, era=era).call("order")
    assert call.text == "5: sandy"
    (asked,) = call.questions
    params = asked.params
    assert isinstance(params, CreateMessageRequestParams)
    assert (params.system_prompt or "").startswith("Be brief.\n\nAnswer with JSON that fits this schema")
    assert '"stars"' in (params.system_prompt or "")


async def test_sample_of_another_shape_is_asked_again_with_the_reason(era: Era) -> None:
    trace = Steps()
    said = ["I liked it", '{"stars": "many", "words": "sandy"}', '{"stars": 4, "words": "sandy"}']
    call = await User(shop(review, trace=trace), {lambda _: True: said}, era=era).call("order")
    assert call.text == "4: sandy"
    assert call.asked[-1].startswith("The last answer was not valid: stars")
    assert [set(round.values()) for round in trace.asked] == [{"new"}, {"invalid"}, {"invalid"}]


async def test_sample_without_client_capability_is_rejected_naming_it(era: Era) -> None:
    """Shows S6."""
    trace = Steps()
    with pytest.raises(MCPError) as rejected:
        await User(shop(review, trace=trace), era=era, missing_capabilities=["sampling"]).call("order")
    assert rejected.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert rejected.value.error.data == {"requiredCapabilities": {"sampling": {}}}
    assert trace.events[-1] is Event.REJECT


async def test_a_body_lists_the_clients_roots() -> None:
    async def body(ctx: Context[Any, Any]) -> list[str]:
        return [str(root.uri) for root in (await ctx.list_roots()).roots]

    user = User(shop(body), era=Era.RETRY, roots=[Root(uri=FileUrl("file:///home/user/books"))])
    assert (await user.call("order")).value == ["file:///home/user/books"]
