"""The four functions of `roundtrip.resolve`, called by a tool that fills another function's parameters."""

import re
from typing import Annotated, Any

import pytest
from mcp.server import MCPServer
from mcp_types import InputRequiredResult

from roundtrip import Context, Elicit, ElicitationResult, InvalidSignature, Resolve, Server
from roundtrip.errors import KeysMissing
from roundtrip.resolve import (
    build_resolver_plans,
    find_resolved_parameters,
    resolve_arguments,
    returns_input_required,
)
from roundtrip.testing import CANCEL, DECLINE, Answers, Era, Hop, User
from tests.kit.shops import KEY, Choice

pytestmark = pytest.mark.anyio


async def price(title: str) -> int:
    return len(title)


async def confirm(title: str, cost: Annotated[int, Resolve(price)]) -> Elicit[Choice]:
    return Elicit(f"{title} for {cost}?", Choice)


async def wrap(choice: Annotated[Choice, Resolve(confirm)]) -> Elicit[Choice]:
    return Elicit(f"Wrap it ({choice.ok})?", Choice)


async def sale(
    title: str,
    cost: Annotated[int, Resolve(price)],
    choice: Annotated[Choice, Resolve(confirm)],
    wrapped: Annotated[ElicitationResult[Choice], Resolve(wrap)],
) -> str:
    return f"{title} {cost} {choice.ok} {wrapped.action}"


RESOLVED = find_resolved_parameters(sale)
PLANS = build_resolver_plans(RESOLVED, {"title"})
ANSWERS: Answers = {re.compile("Dune for 4"): {"ok": True}, re.compile("Wrap it"): DECLINE}


def till(make: type[MCPServer[Any]], **options: Any) -> MCPServer[Any]:
    server = make("till", **options)

    @server.tool()
    async def sell(title: str, ctx: Context[Any, Any]) -> str | InputRequiredResult:
        filled = await resolve_arguments(RESOLVED, PLANS, {"title": title}, ctx)
        return filled if isinstance(filled, InputRequiredResult) else await sale(title=title, **filled)

    return server


BOTH = pytest.mark.parametrize("make", [Server[Any], MCPServer[Any]], ids=["roundtrip", "sdk"])


@BOTH
async def test_arguments_are_resolved_by_hand_over_two_rounds(era: Era, make: type[MCPServer[Any]]) -> None:
    result = await User(till(make), ANSWERS, era=era).call("sell", {"title": "Dune"})
    assert result.text == "Dune 4 True decline"
    assert result.asked == ["Dune for 4?", "Wrap it (True)?"]


@BOTH
async def test_rejected_value_is_the_tools_error(make: type[MCPServer[Any]]) -> None:
    result = await User(till(make), {re.compile("Dune for 4"): CANCEL}, era=Era.RETRY).call("sell", {"title": "Dune"})
    assert result.is_error
    assert result.text.endswith("Resolver for parameter 'choice' could not resolve: elicitation was cancel")


async def test_each_leg_resolves_by_hand_on_another_instance() -> None:
    user = User(lambda: till(Server[Any], keys=[KEY]), {"confirm": {"ok": False}, "wrap": {"ok": True}}, network=Hop())
    assert (await user.call("sell", {"title": "Dune"})).text == "Dune 4 False accept"


def test_found_parameters_say_who_wants_the_outcome() -> None:
    assert {name: wants for name, (_, wants) in RESOLVED.items()} == {"cost": False, "choice": False, "wrapped": True}
    assert RESOLVED["cost"][0].fn is price
    assert find_resolved_parameters(price) == {}


def test_a_plan_with_a_parameter_that_nothing_fills_is_rejected() -> None:
    with pytest.raises(InvalidSignature, match=r"'title'.*'price'"):
        build_resolver_plans(RESOLVED, set())


def test_a_hand_written_question_is_seen_in_the_return_annotation() -> None:
    async def by_hand() -> str | InputRequiredResult: ...

    assert returns_input_required(by_hand)
    assert not returns_input_required(sale)


async def test_sealed_value_is_rejected_on_a_keyless_server() -> None:
    async def draw() -> int:
        return 4

    async def lottery(number: Annotated[int, Resolve(draw, remember=True)]) -> int:
        return number

    resolved = find_resolved_parameters(lottery)
    plans = build_resolver_plans(resolved, set())
    problems: list[KeysMissing] = []
    server = MCPServer("till")

    @server.tool()
    async def play(ctx: Context[Any, Any]) -> str:
        try:
            await resolve_arguments(resolved, plans, {}, ctx)
        except KeysMissing as error:
            problems.append(error)
        return "tried"

    await User(server, era=Era.RETRY).call("play")
    (problem,) = problems
    assert "remember=True" in str(problem)
