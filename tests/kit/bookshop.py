"""The most common test server: a bookshop that looks things up, and asks if needed."""

from collections.abc import Sequence
from typing import Annotated, Any

from mcp_types import CreateMessageResult, ListRootsResult, TextContent
from pydantic import BaseModel

from roundtrip import Context, Elicit, ElicitationResult, ListRoots, Resolve, Sample, Server

KEY = b"a key of this bookshop's own, 32+ bytes"
STOCK = {"Dune": 7, "Neuromancer": 0}


class Stock(BaseModel):
    title: str
    copies: int


class Backorder(BaseModel):
    confirm: bool


class Copies(BaseModel):
    copies: int


async def check_stock(title: str) -> Stock:
    return Stock(title=title, copies=STOCK.get(title, 0))


async def confirm_backorder(title: str, stock: Annotated[Stock, Resolve(check_stock)]) -> Backorder | Elicit[Backorder]:
    if stock.copies:
        return Backorder(confirm=True)
    return Elicit(f"{title} is out of stock. Order anyway?", Backorder)


async def how_many(title: str, backorder: Annotated[Backorder, Resolve(confirm_backorder)]) -> Copies | Elicit[Copies]:
    if not backorder.confirm:
        return Copies(copies=0)
    return Elicit(f"How many copies of {title}?", Copies)


async def blurb(title: str) -> Sample:
    return Sample(f"Praise {title}", max_tokens=50)


async def shelves() -> ListRoots:
    return ListRoots()


def bookshop(name: str = "bookshop", *, keys: Sequence[bytes] | None = (KEY,), **options: Any) -> Server[Any]:
    server = Server[Any](name, keys=keys, **options)

    @server.tool()
    async def reserve(title: str, stock: Annotated[Stock, Resolve(check_stock)]) -> str:
        return f"{title}: {stock.copies} left"

    @server.tool()
    async def order(
        title: str,
        stock: Annotated[Stock, Resolve(check_stock)],
        backorder: Annotated[Backorder, Resolve(confirm_backorder)],
        copies: Annotated[Copies, Resolve(how_many)],
    ) -> str:
        when = "now" if stock.copies else "in 2-3 weeks"
        return f"{copies.copies} x {title}, {when}" if backorder.confirm else "no order"

    @server.tool()
    async def consider(
        title: str, backorder: Annotated[ElicitationResult[Backorder], Resolve(confirm_backorder)]
    ) -> str:
        if backorder.action != "accept":
            return f"{title}: {backorder.action}"
        return f"{title}: {backorder.data.confirm}"

    @server.tool()
    async def present(
        title: str,
        backorder: Annotated[Backorder, Resolve(confirm_backorder)],
        text: Annotated[CreateMessageResult, Resolve(blurb)],
        roots: Annotated[ListRootsResult, Resolve(shelves)],
    ) -> str:
        said = text.content.text if isinstance(text.content, TextContent) else "?"
        return f"{title}: {backorder.confirm}, {said}, {[root.name for root in roots.roots]}"

    @server.tool()
    async def greet(name: str, ctx: Context[Any, Any]) -> str:
        return f"hello {name} from {ctx.mcp_server.name}"

    return server
