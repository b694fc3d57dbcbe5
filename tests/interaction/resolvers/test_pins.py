"""An answer counts for its own question only, even against a client that searches for collisions."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver import MCPServer
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateSecurity
from mcp_types import InputRequiredResult

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import MemoryLedger
from roundtrip.machine.facts import Reason
from roundtrip.resolve import build_resolver_plans, find_resolved_parameters, resolve_arguments
from roundtrip.testing import LegByLeg, Steps
from tests.kit.players import text_of

pytestmark = pytest.mark.anyio

OLD, NEW = b"old key, thirty-two bytes long..", b"new key, thirty-two bytes long.."
CHEAP, DEAR = "Pay EUR 20 for invoice 18893335?", "Pay EUR 98,000 for invoice 17233823?"
"""The SHA-256 of both begin with the same six bytes, which is what pins once were."""


class Desk:
    """Service whose question changes with its invoice."""

    def __init__(self) -> None:
        self.invoice = CHEAP
        self.paid: list[str] = []

    def server(self, **options: Any) -> Server[Any]:
        async def sure() -> Elicit[bool]:
            return Elicit(self.invoice, bool)

        server = Server[Any]("desk", ledger=MemoryLedger(), **options)

        @server.tool(exactly_once=True)
        async def pay(sure: Annotated[bool, Resolve(sure)]) -> str:
            """Pay."""
            self.paid.append(self.invoice)
            return f"paid: {sure}"

        @server.tool()
        async def pay_in_body(ctx: Context) -> str:
            """Pay."""
            answer = await ctx.elicit(self.invoice, bool, name="sure")
            self.paid.append(self.invoice)
            return f"paid: {answer.action}"

        return server


POLICIES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "keys": lambda: {"keys": [NEW]},
    "encrypting": lambda: {"keys": [NEW], "encrypt": True},
    "another codec": lambda: {
        "request_state_security": RequestStateSecurity(codec=AESGCMRequestStateCodec([NEW]), audience="desk")
    },
}


@pytest.mark.parametrize(
    ("policy", "tool"),
    [("keys", "pay"), ("keys", "pay_in_body"), ("encrypting", "pay"), ("another codec", "pay_in_body")],
)
async def test_a_yes_counts_for_no_question_of_a_colliding_digest(policy: str, tool: str) -> None:
    desk = Desk()
    legs = LegByLeg([desk.server(**POLICIES[policy]())])
    await legs.leg(tool)
    desk.invoice = DEAR
    result = await legs.leg(tool, answers={"sure": True}, state=legs.token)
    assert isinstance(result, InputRequiredResult)
    assert desk.paid == []
    assert "paid" in text_of(await legs.leg(tool, answers={"sure": True}, state=legs.token))
    assert desk.paid == [DEAR]


async def test_without_any_key_a_colliding_digest_does_not_count_either() -> None:
    """`resolve_arguments` serves servers that have no keys of roundtrip's."""
    invoice = [CHEAP]

    async def sure() -> Elicit[bool]:
        return Elicit(invoice[0], bool)

    async def pay(sure: Annotated[bool, Resolve(sure)]) -> None: ...

    found = find_resolved_parameters(pay)
    plans = build_resolver_plans(found, set())
    server = MCPServer[Any]("desk", request_state_security=RequestStateSecurity.ephemeral())

    @server.tool()
    async def order(ctx: SdkContext[Any, Any]) -> str | InputRequiredResult:
        """Order."""
        filled = await resolve_arguments(found, plans, {}, ctx)
        return filled if isinstance(filled, InputRequiredResult) else f"paid: {filled['sure']}"

    legs = LegByLeg([server])
    await legs.leg("order")
    invoice[0] = DEAR
    result = await legs.leg("order", answers={"sure": True}, state=legs.token)
    assert isinstance(result, InputRequiredResult)
    assert text_of(await legs.leg("order", answers={"sure": True}, state=legs.token)) == "paid: True"


def booking(trace: Steps | None = None, *, keys: list[bytes], known: bool = True) -> Server[Any]:
    """Make a build; one without the first question keeps the answer to it."""

    async def seat() -> Elicit[str]:
        return Elicit("Which seat?", str)

    async def meal() -> Elicit[str]:
        return Elicit("Which meal?", str)

    server = Server[Any]("trips", keys=keys, build=f"knows {known}", trace=trace)

    async def book(seat: Annotated[str, Resolve(seat)], meal: Annotated[str, Resolve(meal)], ctx: Context) -> str:
        """Book."""
        name = await ctx.elicit("Your name?", str)
        assert name.action == "accept"
        return f"{name.data}: {seat}, {meal}"

    async def book_without(meal: Annotated[str, Resolve(meal)], ctx: Context) -> str:
        """Book."""
        await ctx.elicit("Which class?", str)
        return ""

    server.add_tool(book if known else book_without, name="book")
    return server


ROUNDS: list[dict[str, Any]] = [{"seat": "4A", "meal": "soup"}, {"": "Ada"}]


async def booked(rings: list[list[bytes]]) -> str:
    legs = LegByLeg([booking(keys=ring) for ring in rings])
    result = await legs.leg("book")
    for answers in ROUNDS:
        given = {key or next(iter(legs.questions)): value for key, value in answers.items()}
        assert set(legs.questions) == set(given)
        result = await legs.leg("book", answers=given, state=legs.token)
    return text_of(result)


async def test_no_step_of_a_rotation_asks_anything_again() -> None:
    phases = [[OLD], [OLD, NEW], [NEW, OLD], [NEW]]
    for earlier, later in pairwise(phases):
        for rings in ([earlier, later, earlier], [later, earlier, later], [earlier, earlier, later]):
            assert await booked(rings) == "Ada: 4A, soup"


async def test_answers_verified_by_the_new_key_outlive_the_old() -> None:
    assert await booked([[OLD], [NEW, OLD], [NEW]]) == "Ada: 4A, soup"


async def test_an_answer_whose_key_has_gone_is_asked_for_again() -> None:
    """Asking again is safe; an answer that is not tied to its question is not."""
    trace = Steps()
    both, new = [NEW, OLD], [NEW]
    servers = [booking(keys=[OLD]), booking(keys=both, known=False), booking(trace, keys=new), booking(keys=new)]
    legs = LegByLeg(servers)
    await legs.leg("book")
    # The second build knows nothing of seats, and so carries the answer on as it was pinned.
    await legs.leg("book", answers={"seat": "4A", "meal": "soup"}, state=legs.token)
    await legs.leg("book", state=legs.token)
    assert set(legs.questions) == {"seat"}
    assert trace.asked == [{"seat": Reason.KEY_GONE}]
    await legs.leg("book", answers={"seat": "9F"}, state=legs.token)
    assert [question.message for question in legs.questions.values()] == ["Your name?"]
