"""Ask several questions in one function, with a loop and a branch.

Run it with `python examples/wizard.py`; MCP clients run servers over stdio. A client on 2026-07-28 gets one question
per request, and each request may reach another process. An older client is asked while the function waits. The code is
the same for both.
"""

import secrets
from typing import Annotated

from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Server

server = Server("holidays")

PLACES = {"alps": "The Alps, for walking", "coast": "The coast, for swimming"}
"""Values, and the titles that the user sees."""


class Guest(BaseModel):
    name: str = Field(min_length=1)
    age: int = Field(ge=0, le=120)


def quote(place: str, guests: int) -> int:
    """Return the current price, which changes from request to request."""
    return {"alps": 300, "coast": 200}[place] * guests + secrets.randbelow(100)


@server.tool()
async def book_holiday(ctx: Context) -> str:
    """Book a holiday together with the user."""
    place = await ctx.ask("place", Elicit("Where would you like to go?", PLACES))
    count = await ctx.ask("count", f"How many of you go to the {place}?", Annotated[int, Field(ge=1, le=4)])

    # A loop: each question needs its own name, so number it.
    guests = [
        await ctx.ask(f"guest-{number}", f"Who is traveler {number} of {count}?", Guest)
        for number in range(1, count + 1)
    ]

    # A branch: only guests with infants are asked.
    cot = False
    infants = [guest.name for guest in guests if guest.age < 3]
    if infants:
        cot = await ctx.ask("cot", f"A cot for {' and '.join(infants)}?", bool)

    # Without `step`, each request would get another price, and ask another question with it.
    price = await ctx.step("price", quote, place, count)
    if not await ctx.ask("agree", f"That will be {price} euros. Book it?", bool):
        return "Nothing is booked."
    names = ", ".join(guest.name for guest in guests)
    return f"Booked for {names}: the {place}, {'with' if cot else 'without'} a cot, {price} euros."


if __name__ == "__main__":
    server.run()
