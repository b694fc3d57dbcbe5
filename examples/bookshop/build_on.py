"""Step 2: build functions on each other. Two of them need the shelf, and the lookup runs once per leg.

Run it with `python examples/bookshop/build_on.py`; it serves over stdio.
"""

from typing import Annotated

from pydantic import BaseModel

from roundtrip import Resolve, Server

server = Server("bookshop")

SHELVES = {"Persuasion": 3, "Middlemarch": 0}


class Shelf(BaseModel):
    title: str
    left: int


async def find_on_shelf(title: str) -> Shelf:
    return Shelf(title=title, left=SHELVES.get(title, 0))


# roundtrip fills this function's parameters as it fills a tool's.
def days_until_ready(shelf: Annotated[Shelf, Resolve(find_on_shelf)]) -> int:
    return 1 if shelf.left else 14


@server.tool()
async def order(
    title: str,
    shelf: Annotated[Shelf, Resolve(find_on_shelf)],
    days: Annotated[int, Resolve(days_until_ready)],
) -> str:
    """Order a book."""
    source = "from our shelf" if shelf.left else "from the publisher"
    return f"{title} comes {source} and is ready in {days} day(s)."


if __name__ == "__main__":
    server.run()
