"""Step 4: continue after a decline. The tool takes the outcome instead of the answer.

Run it with `python examples/bookshop/take_no.py`; it serves over stdio.
"""

from typing import Annotated

from pydantic import BaseModel, Field

from roundtrip import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Elicit,
    ElicitationResult,
    Resolve,
    Server,
)

server = Server("bookshop")

SHELVES = {"Persuasion": 3, "Middlemarch": 0}
SIMILAR = {"Middlemarch": "Persuasion"}


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
    patience: Annotated[ElicitationResult[Patience], Resolve(ask_for_patience)],
) -> str:
    """Order a book, or suggest another."""
    if shelf.left:
        return f"{title} is yours today."
    match patience:
        case AcceptedElicitation(data=Patience(will_wait=True)):
            return f"{title} is ordered from the publisher."
        case AcceptedElicitation() | DeclinedElicitation():
            return f"{title} is not ordered. Readers of it also like {SIMILAR.get(title, 'Emma')}."
        case CancelledElicitation():
            return "Nothing is ordered; ask again whenever it suits."


if __name__ == "__main__":
    server.run()
