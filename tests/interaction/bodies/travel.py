"""A travel agency whose one tool is a wizard: five kinds of questions, a loop and a branch, as straight-line code."""

import itertools
from collections import Counter
from typing import Any, Literal

from pydantic import BaseModel

from roundtrip import Context, Elicit, Server
from roundtrip.testing import Steps
from tests.kit.shops import KEY

SECRET = "MARGIN-IS-42-PERCENT"


class Trip(BaseModel):
    city: str
    travellers: int


class Traveller(BaseModel):
    name: str


class Payment(BaseModel):
    how: Literal["card", "invoice"]


class Quote(BaseModel):
    price: int
    note: str


class Books:
    """Number of runs of each step, on all instances of the agency together."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self._prices = itertools.count(101)

    def quote(self, city: str, travellers: int) -> Quote:
        """Return a price that differs on each lookup."""
        self.ran["quote"] += 1
        return Quote(price=next(self._prices) * travellers, note=f"{city} {SECRET}")

    async def reserve(self, price: int) -> str:
        self.ran["reserve"] += 1
        return f"R{price}"

    def agency(self, trace: Steps | None = None) -> Server[Any]:
        server = Server[Any]("agency", keys=[KEY], trace=trace)

        @server.tool()
        async def book(ctx: Context[Any, Any]) -> str:
            trip = await ctx.ask("trip", "Where to, and how many?", Trip)
            names: list[str] = []
            for number in range(trip.travellers):
                traveller = await ctx.ask(f"traveller-{number}", f"Who is traveller {number + 1}?", Traveller)
                names.append(traveller.name)
            quote = await ctx.step("quote", self.quote, trip.city, trip.travellers)
            payment = await ctx.ask("payment", f"{quote.price} for {' and '.join(names)}. How to pay?", Payment)
            if payment.how == "card":
                to = f"card {await ctx.ask('card', 'Which card?', {'a': 'Amex', 'v': 'Visa'})}"
            else:
                to = await ctx.ask("address", f"Bill {quote.price} to which address?", str)
            reservation = await ctx.step("reserve", self.reserve, quote.price)
            sure = await ctx.ask("sure", f"Charge {quote.price} for {reservation} to {to}?", bool)
            return f"{reservation}: {', '.join(names)} to {trip.city} for {quote.price}, {to}: {sure}"

        @server.tool()
        async def compare(ctx: Context[Any, Any]) -> str:
            answers = await ctx.ask_all({"left": Elicit("Left?", int), "right": Elicit("Right?", int)})
            third = await ctx.ask("third", "Third?", int)
            return f"{answers['left']} {answers['right']} {third}"

        return server
