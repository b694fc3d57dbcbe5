"""Contexts of bodies, beside resolvers, and in code that was written for the SDK's own context."""

import re
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import Context as SdkContext
from pydantic import BaseModel

from roundtrip import Context, Elicit, Resolve
from roundtrip.client.legs import ERAS
from roundtrip.testing import CANCEL, Answers, Era, Reply, Restart, Steps, User
from tests.interaction.bodies.shops import shop
from tests.kit.shops import Choice

pytestmark = pytest.mark.anyio


class Name(BaseModel):
    name: str


async def who() -> Elicit[Name]:
    return Elicit("Who?", Name)


async def order_for(ctx: Context[Any, Any], name: Annotated[Name, Resolve(who)]) -> str:
    sure = await ctx.ask("sure", f"Sure, {name.name}?", Choice)
    return f"{name.name} {sure.ok} {ctx.call.leg}"


async def test_resolver_questions_precede_body_questions_on_both_eras() -> None:
    paths: list[Any] = []
    for era in ERAS:
        trace = Steps()
        answers: Answers = {"who": {"name": "Ada"}, "sure": {"ok": True}}
        call = await User(shop(order_for, trace=trace), answers, era=era).call("order")
        assert call.text == ("Ada True 3" if era is Era.RETRY else "Ada True 1")
        assert trace.asked == [{"who": "new"}, {"sure": "new"}]
        paths.append(trace.states)
    assert paths[0] == paths[1]


async def test_questions_of_both_resume_on_other_servers() -> None:
    answers: Answers = {"who": {"name": "Ada"}, "sure": {"ok": False}}
    call = await User(lambda: shop(order_for), answers, network=Restart()).call("order")
    assert call.text == "Ada False 3"


@pytest.mark.parametrize(
    ("reply", "said"),
    [({"ok": True}, "True"), (CANCEL, "cancel")],
)
async def test_elicit_as_the_sdk_has_it_works_on_both_eras(era: Era, reply: Reply, said: str) -> None:
    async def body(title: str, ctx: SdkContext[Any, Any]) -> str:
        answer = await ctx.elicit(f"Order {title}?", Choice)
        if answer.action == "accept":
            return f"{title}: {answer.data.ok}"
        return f"{title}: {answer.action}"

    call = await User(shop(body), {re.compile("Order Dune"): reply}, era=era).call("order", {"title": "Dune"})
    assert call.text == f"Dune: {said}"


async def test_a_body_without_a_context_annotation_has_an_optional_one() -> None:
    async def body(ctx: Context[Any, Any] | None = None) -> str:
        if ctx is None:
            return "none"
        return (await ctx.ask_outcome("sure", "Sure?", Choice)).action

    assert (await User(shop(body), {"sure": {"ok": True}}, era=Era.RETRY).call("order")).text == "accept"


async def test_resolver_asking_through_its_context_gets_advice() -> None:
    async def sure(ctx: Context[Any, Any]) -> Choice:
        return await ctx.ask("sure", "Sure?", Choice)

    async def body(choice: Annotated[Choice, Resolve(sure)]) -> str:
        return "never"

    result = await User(shop(body), era=Era.RETRY).call("order")
    assert "'sure' must be asked in a tool's body. A resolver asks by returning its question" in result.text


async def test_resolver_that_elicits_gets_advice() -> None:
    async def sure(ctx: Context[Any, Any]) -> Choice:
        answer = await ctx.elicit("Sure?", Choice)
        return answer.data if answer.action == "accept" else Choice(ok=False)

    async def body(choice: Annotated[Choice, Resolve(sure)]) -> bool:
        return choice.ok

    call = await User(shop(body), era=Era.RETRY).call("order")
    assert "on this protocol revision, ctx.elicit() in a resolver cannot wait" in call.text
    assert "`return Elicit(message, schema)`" in call.text
