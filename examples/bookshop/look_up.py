"""Step 1: fill a parameter with a function, so that the model can neither see nor invent it.

Run it with `python examples/bookshop/look_up.py`; it serves over stdio.
"""

from typing import Annotated

from pydantic import BaseModel

from roundtrip import Resolve, Server

server = Server("bookshop")

SHELVES = {"Persuasion": 3, "Middlemarch": 0}


class Shelf(BaseModel):
    title: str
    left: int


# `title` is the tool's validated argument, because the names are equal.
async def find_on_shelf(title: str) -> Shelf:
    return Shelf(title=title, left=SHELVES.get(title, 0))


@server.tool()
async def set_aside(title: str, shelf: Annotated[Shelf, Resolve(find_on_shelf)]) -> str:
    """Set a book aside for the customer."""
    if not shelf.left:
        return f"There is no copy of {title} left."
    return f"A copy of {title} is set aside; {shelf.left - 1} left."


if __name__ == "__main__":
    server.run()
