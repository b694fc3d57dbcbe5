"""Step 3: ask the customer, but only if the answer matters. If the customer declines, the call ends.

Run it with `python examples/bookshop/ask.py`; it serves over stdio.
"""

from typing import Annotated

from pydantic import BaseModel, Field

from roundtrip import Elicit, Resolve, Server

server = Server("bookshop")

SHELVES = {"Persuasion": 3, "Middlemarch": 0}


class Shelf(BaseModel):
    title: str
    left: int


class Patience(BaseModel):
    will_wait: bool = Field(description="Wait two weeks for the publisher")


async def find_on_shelf(title: str) -> Shelf:
    return Shelf(title=title, left=SHELVES.get(title, 0))


async def ask_for_patience(title: str, shelf: Annotated[Shelf, Resolve(find_on_shelf)]) -> Patience | Elicit[Patience]:
    if shelf.left:
        return Patience(will_wait=False)
    return Elicit(f"We have to order {title} from the publisher. Would you wait?", Patience)


@server.tool()
async def order(
    title: str,
    shelf: Annotated[Shelf, Resolve(find_on_shelf)],
    patience: Annotated[Patience, Resolve(ask_for_patience)],
) -> str:
    """Order a book."""
    if shelf.left:
        return f"{title} is yours today."
    # A "no" in the form is an accepted answer, so the call continues.
    return f"{title} is ordered from the publisher." if patience.will_wait else f"{title} is not ordered."


if __name__ == "__main__":
    server.run()
