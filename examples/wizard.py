"""A wizard: questions that follow from each other, with a loop and a branch, as one function read from top to bottom.

Run it with `python examples/wizard.py`, as any MCP client does that starts servers over stdio. A client of the new
revision is answered with one question at a time, and each of its requests may reach another process; one of an older
revision is asked while the function waits. The function does not know.
"""

import secrets
from typing import Annotated

from pydantic import BaseModel, Field

from roundtrip import Context, Elicit, Server

server = Server("holidays")

PLACES = {"alps": "The Alps, for walking", "coast": "The coast, for swimming"}
"""Values, and the titles under which the user chooses one."""


class Guest(BaseModel):
    name: str = Field(min_length=1)
    age: int = Field(ge=0, le=120)


def quote(place: str, guests: int) -> int:
    """Today's price; tomorrow's, and that of the next request, is another."""
    return {"alps": 300, "coast": 200}[place] * guests + secrets.randbelow(100)


@server.tool()
async def book_holiday(ctx: Context) -> str:
    """Book a holiday together with the user."""
    place = await ctx.ask("place", "Where would you like to go?", PLACES)

    how_many = Elicit(f"How many of you go to the {place}?", Annotated[int, Field(ge=1, le=4)])
    count: int = await ctx.ask("count", how_many)

    # A loop: each question needs a name of its own, and the number makes it one.
    guests: list[Guest] = []
    for number in range(1, count + 1):
        who = Elicit(f"Who is traveller {number} of {count}?", Guest)
        guests.append(await ctx.ask(f"guest-{number}", who))

    # A branch: asked only where it matters.
    cot = False
    infants = [guest.name for guest in guests if guest.age < 3]
    if infants:
        cot = await ctx.ask("cot", f"A cot for {' and '.join(infants)}?", bool)

    # Without `step` each request would draw another price, and ask another question with it.
    price = await ctx.step("price", quote, place, count)
    if not await ctx.ask("agree", f"That will be {price} euros. Book it?", bool):
        return "Nothing is booked."
    names = ", ".join(guest.name for guest in guests)
    return f"Booked for {names}: the {place}, {'with' if cot else 'without'} a cot, {price} euros."


if __name__ == "__main__":
    server.run()
