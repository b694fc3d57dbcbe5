"""Provide a server with a realistic tool for each feature, and the users' answers for each."""

import itertools
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from mcp.server.subscriptions import InMemorySubscriptionBus, ServerEvent
from mcp_types import CreateMessageResult, ListRootsResult, Root
from pydantic import BaseModel, Field, FileUrl

from roundtrip import (
    Context,
    Depends,
    Elicit,
    ElicitationResult,
    ElicitUrl,
    ListRoots,
    Resolve,
    Sample,
    Server,
    ToolError,
)
from roundtrip.ledger import Ledger
from roundtrip.testing import ACCEPT, CANCEL, DECLINE, LegRequest

__all__ = ["FEATURES", "GUESTS", "KEY", "ROOTS", "Effect", "Feature", "serve"]

KEY: Final = b"f" * 32
ROOTS: Final = [Root(uri=FileUrl("file:///shop"))]


class Guests(BaseModel):
    adults: int = Field(ge=1, le=9)
    children: int = 0


class Room(BaseModel):
    name: str
    view: bool = False


def guests(hotel: str) -> Elicit[Guests]:
    return Elicit(f"Who comes to {hotel}?", Guests)


def room(guests: Annotated[Guests, Resolve(guests)]) -> Elicit[Room]:
    return Elicit(f"Which room for {guests.adults}?", Room)


Party = Annotated[Guests, Resolve(guests)]
Suite = Annotated[Room, Resolve(room)]


class Effect(list[str]):
    """Effects of bodies and steps; `closed` closes the visibility gates and changes the prices."""

    closed = False


class Heard(InMemorySubscriptionBus):
    """Bus that remembers its publications."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[ServerEvent] = []

    async def publish(self, event: ServerEvent) -> None:
        self.events.append(event)
        await super().publish(event)


@dataclass
class Feature:
    """Tool, prompt or template, and the course of its call."""

    leg: LegRequest
    answers: Any = field(default_factory=dict[str, Any])
    lacks: frozenset[str] = frozenset()
    ends: str = ""
    """Text that the result, or the error, has."""
    replayable: str | None = None
    """The reason why no test can be written of it, if so."""


def _order(tool: str, **arguments: Any) -> LegRequest:
    return LegRequest(tool, {"hotel": "Ritz", **arguments})


GUESTS: Final = {"adults": 2, "children": 1}
ROOM: Final = {"name": "Suite", "view": True}

FEATURES: Final[Mapping[str, Feature]] = {
    "plain": Feature(_order("plain"), ends="plain at Ritz"),
    "resolver": Feature(_order("resolver"), {"guests": GUESTS, "room": ROOM}, ends="2+1 in Suite"),
    "outcome": Feature(_order("outcome"), {"guests": DECLINE}, ends="nobody"),
    "refused": Feature(_order("resolver"), {"guests": CANCEL}, ends="cancel"),
    "invalid": Feature(
        _order("resolver"),
        {"guests": [{"adults": 0, "children": 3}, {"adults": 12}, GUESTS], "room": ROOM},
        ends="2+1 in Suite",
    ),
    "invalid_too_often": Feature(_order("resolver"), {"guests": [{"adults": 0}] * 3}, ends="guests"),
    "body": Feature(_order("body"), {"guests": GUESTS, "room": ROOM}, ends="2+1 in Suite"),
    "all": Feature(_order("all_at_once"), {"guests": [{"adults": 0}, GUESTS], "room": ROOM}, ends="2+1 in Suite"),
    "mixed": Feature(_order("mixed"), {"guests": GUESTS, "room": ROOM, "sure": True}, ends="2+1 in Suite"),
    "step": Feature(_order("step"), {"guests": GUESTS}, ends="priced 1"),
    "once": Feature(_order("once"), {"guests": GUESTS, "agree": True}, ends="at 2"),
    "once_asked": Feature(_order("once_asked"), {"guests": GUESTS, "agree": True}, ends="2 guests"),
    "page": Feature(_order("page"), {"pay": ACCEPT}, ends="paid"),
    "page_bound": Feature(_order("page_bound"), {"pay": ACCEPT}, ends="paid"),
    "page_declined": Feature(_order("page"), {"pay": DECLINE}, ends="decline"),
    "confirm": Feature(_order("confirm"), {"confirm:confirm": True}, ends="cleared Ritz"),
    "confirm_refused": Feature(_order("confirm"), {"confirm:confirm": DECLINE}, ends="decline"),
    "review": Feature(
        _order("review"),
        {"guests": GUESTS, "room": ROOM, "check": {"guests.adults": 3, "guests.children": 0}},
        ends="3+0 in Suite",
    ),
    "sample": Feature(_order("sample"), {"idea": "stay"}, ends="stay"),
    "roots": Feature(_order("roots"), ends="file:///shop"),
    "fallback": Feature(_order("fallback"), lacks=frozenset({"elicitation"}), ends="7 nights"),
    "lacking": Feature(_order("resolver"), lacks=frozenset({"elicitation"}), ends="elicitation"),
    "exactly_once": Feature(_order("exactly_once"), {"guests": GUESTS}, ends="booked 2"),
    "exactly_once_plain": Feature(_order("exactly_once_plain"), ends="booked"),
    "exactly_once_body": Feature(_order("exactly_once_body"), {"guests": GUESTS, "room": ROOM}, ends="booked 2"),
    "exactly_once_fails": Feature(_order("exactly_once_fails"), {"guests": GUESTS}, ends="sold out"),
    "entered": Feature(_order("entered"), {"guests": GUESTS}, ends="desk open for 2"),
    "gate": Feature(_order("gate"), {"guests": GUESTS}, ends="let in 2"),
    "hidden_since": Feature(_order("hidden_since"), {"guests": GUESTS}, ends="seen by 2"),
    "version_1": Feature(
        LegRequest("versions", {"hotel": "Ritz"}, meta={"roundtrip/version": "1"}), {"guests": GUESTS}, ends="first 2"
    ),
    "version_2": Feature(_order("versions"), {"room": ROOM}, ends="second Suite"),
    "prompt": Feature(
        LegRequest("praise", {"hotel": "Ritz"}, method="prompts/get"),
        {"guests": GUESTS},
        ends="2 praise Ritz",
        replayable="can repeat only tool calls",
    ),
    "template": Feature(
        LegRequest("hotel://Ritz/menu", {}, method="resources/read"),
        {"guests": GUESTS},
        ends="menu of Ritz for 2",
        replayable="can repeat only tool calls",
    ),
    "crash": Feature(_order("crash"), {"guests": GUESTS}, ends="crash"),
    "resolver_fails": Feature(_order("resolver_fails"), {"guests": GUESTS}, ends="no rooms"),
    "announces": Feature(_order("announces"), {"guests": GUESTS}, ends="told"),
}


def serve(ledger: Ledger, effect: Effect, bus: Heard | None = None, **options: Any) -> Server[Any]:
    """Make a server with all of the tools."""
    server: Server[Any] = Server("hotels", keys=[KEY], ledger=ledger, subscriptions=bus, **options)
    prices: Iterator[int] = itertools.count(100 if effect.closed else 1)
    paid: set[str] = set()

    async def price() -> int:
        return next(prices)

    def agree(price: Annotated[int, Resolve(price, remember=True)]) -> Elicit[bool]:
        return Elicit(f"That is {price}. Agreed?", bool)

    def last(agree: Annotated[bool, Resolve(agree)], guests: Annotated[Guests, Resolve(guests)]) -> Guests:
        del agree
        return guests

    def is_paid(ctx: Context) -> bool:
        # The page is visited between the first look and the second.
        seen = ctx.call.id in paid
        paid.add(ctx.call.id)
        return seen

    def pay() -> ElicitUrl[bool]:
        return ElicitUrl("Pay here", "https://pay.example/", done=is_paid, wait=5)

    def pay_bound(ctx: Context) -> ElicitUrl[bool]:
        ticket = ctx.call.ticket("pay")
        return ElicitUrl("Pay here", f"https://pay.example/?ticket={ticket}", done=is_paid, wait=5)

    @contextmanager
    def desk() -> Generator[str]:
        yield "desk"

    def clock() -> int:
        effect.append("step")
        return 1

    @server.tool()
    async def plain(hotel: str) -> str:
        effect.append("plain")
        return f"plain at {hotel}"

    @server.tool()
    async def resolver(hotel: str, guests: Party, room: Suite) -> str:
        effect.append("resolver")
        return f"{guests.adults}+{guests.children} in {room.name}"

    @server.tool()
    def outcome(hotel: str, guests: Annotated[ElicitationResult[Guests], Resolve(guests)]) -> str:
        effect.append("outcome")
        return "nobody" if guests.action != "accept" else "somebody"

    @server.tool()
    async def body(hotel: str, ctx: Context) -> str:
        effect.append("body")
        party = await ctx.ask("guests", guests(hotel))
        suite = await ctx.ask("room", f"Which room for {party.adults}?", Room)
        return f"{party.adults}+{party.children} in {suite.name}"

    @server.tool()
    async def all_at_once(hotel: str, ctx: Context) -> str:
        effect.append("all")
        got = await ctx.ask_all({"guests": guests(hotel), "room": Elicit("Which room?", Room)})
        party, suite = got["guests"], got["room"]
        return f"{party.adults}+{party.children} in {suite.name}"

    @server.tool()
    async def mixed(hotel: str, guests: Party, room: Suite, ctx: Context) -> str:
        effect.append("mixed")
        await ctx.ask("sure", "Sure?", bool)
        return f"{guests.adults}+{guests.children} in {room.name}"

    @server.tool()
    async def step(hotel: str, ctx: Context) -> str:
        effect.append("step body")
        number = await ctx.step("clock", clock)
        await ctx.ask("guests", f"At {number}, who?", Guests)
        return f"priced {number}"

    @server.tool()
    async def once(hotel: str, party: Annotated[Guests, Resolve(last)]) -> str:
        effect.append("once")
        return f"at {party.adults}"

    @server.tool()
    async def once_asked(
        hotel: str,
        party: Annotated[Guests, Resolve(guests, remember=True)],
        agree: Annotated[bool, Resolve(agree, remember=True)],
    ) -> str:
        effect.append("once asked")
        return f"{party.adults} guests"

    @server.tool()
    async def page(hotel: str, pay: Annotated[bool, Resolve(pay)]) -> str:
        effect.append("page")
        return "paid"

    @server.tool()
    async def page_bound(hotel: str, pay: Annotated[bool, Resolve(pay_bound, name="pay")]) -> str:
        effect.append("page bound")
        return "paid"

    @server.tool(confirm="Clear {hotel}?")
    async def confirm(hotel: str) -> str:
        effect.append("confirm")
        return f"cleared {hotel}"

    @server.tool()
    async def review(hotel: str, guests: Party, ctx: Context) -> str:
        effect.append("review")
        suite = await ctx.ask("room", "Which room?", Room)
        await ctx.review("check", "Right?", of=["guests"])
        return f"{guests.adults}+{guests.children} in {suite.name}"

    def idea(hotel: str) -> Sample:
        return Sample(f"What to do at {hotel}?", max_tokens=10)

    def folders() -> ListRoots:
        return ListRoots()

    @server.tool()
    async def sample(hotel: str, idea: Annotated[CreateMessageResult, Resolve(idea)]) -> str:
        effect.append("sample")
        return getattr(idea.content, "text", "?")

    @server.tool()
    async def roots(hotel: str, folders: Annotated[ListRootsResult, Resolve(folders)]) -> str:
        effect.append("roots")
        return str(folders.roots[0].uri)

    def nights() -> Elicit[int]:
        return Elicit("How many nights?", int, fallback=7)

    @server.tool()
    async def fallback(hotel: str, nights: Annotated[int, Resolve(nights)]) -> str:
        effect.append("fallback")
        return f"{nights} nights"

    @server.tool(exactly_once=True)
    async def exactly_once(hotel: str, guests: Party) -> str:
        effect.append("exactly once")
        return f"booked {guests.adults}"

    @server.tool(exactly_once=True, uncovered="round")
    async def exactly_once_plain(hotel: str) -> str:
        effect.append("exactly once plain")
        return "booked"

    @server.tool(exactly_once=True)
    async def exactly_once_body(hotel: str, ctx: Context) -> str:
        effect.append("exactly once body")
        party = await ctx.ask("guests", guests(hotel))
        await ctx.ask("room", "Which room?", Room)
        return f"booked {party.adults}"

    @server.tool(exactly_once=True)
    async def exactly_once_fails(hotel: str, guests: Party) -> str:
        effect.append("exactly once fails")
        raise ToolError("sold out")

    @server.tool()
    async def entered(hotel: str, guests: Party, desk: Annotated[str, Depends(desk)]) -> str:
        effect.append("entered")
        return f"{desk} open for {guests.adults}"

    @server.tool(enabled=lambda: not effect.closed)
    async def gate(hotel: str, guests: Party) -> str:
        effect.append("gate")
        return f"let in {guests.adults}"

    @server.tool()
    async def hidden_since(hotel: str, guests: Party) -> str:
        effect.append("hidden since")
        return f"seen by {guests.adults}"

    @server.tool(name="versions", version="1")
    async def first(hotel: str, guests: Party) -> str:
        effect.append("first")
        return f"first {guests.adults}"

    def suite(hotel: str) -> Elicit[Room]:
        return Elicit(f"Which room at {hotel}?", Room)

    @server.tool(name="versions", version="2")
    async def second(hotel: str, room: Annotated[Room, Resolve(suite, name="room", former_names=("guests",))]) -> str:
        effect.append("second")
        return f"second {room.name}"

    @server.prompt()
    async def praise(hotel: str, guests: Party) -> str:
        effect.append("praise")
        return f"{guests.adults} praise {hotel}"

    @server.resource("hotel://{hotel}/menu")
    async def menu(hotel: str, guests: Party) -> str:
        effect.append("menu")
        return f"menu of {hotel} for {guests.adults}"

    @server.tool()
    async def crash(hotel: str, guests: Party) -> str:
        effect.append("crash")
        raise RuntimeError("crash")

    def no_rooms(guests: Annotated[Guests, Resolve(guests)]) -> str:
        raise ToolError(f"no rooms for {guests.adults}")

    @server.tool()
    async def resolver_fails(hotel: str, free: Annotated[str, Resolve(no_rooms)]) -> str:
        effect.append("resolver fails")
        return free

    async def telling(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        server.disable(names={"hidden_since"})
        server.enable(names={"hidden_since"})
        return "told"

    @server.tool()
    async def announces(hotel: str, guests: Party, told: Annotated[str, Resolve(telling)]) -> str:
        effect.append("announces")
        return told

    return server
