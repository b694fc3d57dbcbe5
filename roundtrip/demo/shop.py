"""The bookshop that every demo instance serves. An order needs three rounds of questions."""

import os
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from roundtrip.questions.markers import Elicit
from roundtrip.resolvers.markers import Resolve
from roundtrip.server.server import Server

if TYPE_CHECKING:
    from roundtrip.trace.writing.tracers import Trace

TOOL: Final = "order_book"

_PRICES: Final = {"paperback": 9.5, "hardcover": 24.0}
_POSTAGE: Final = 3.5


class Edition(BaseModel):
    """The first question."""

    binding: Literal["paperback", "hardcover"] = Field(description="Paperback or hardcover")


class Delivery(BaseModel):
    """The second question, which depends on the first answer."""

    way: Literal["post", "pickup"] = Field(description="By post, or to be picked up")
    note: str = Field(default="", description="Anything the shop should know")


class Consent(BaseModel):
    """The third question, which depends on all earlier answers."""

    agreed: bool = Field(description="Place the order")


class Quote(BaseModel):
    """The prices of today, and the process that looked them up."""

    prices: dict[str, float]
    given_by: str


class Receipt(BaseModel):
    """The result of an order."""

    placed: bool
    summary: str


def make_shop(instance: str, *, key: str, trace: "Trace") -> Server[Any]:
    """Make one instance's server. Servers of different instances differ only in the name that their quotes contain."""
    server: Server[Any] = Server("demo-bookshop", keys=[key], trace=trace)

    def edition(title: str) -> Elicit[Edition]:
        return Elicit(f"Which edition of {title!r} would you like?", Edition)

    # The first leg looks up the price. The quote stays the same during the call, so the last leg charges this price.
    def quote() -> Quote:
        return Quote(prices=_PRICES, given_by=f"{instance} (pid {os.getpid()})")

    def delivery(edition: Annotated[Edition, Resolve(edition)]) -> Elicit[Delivery]:
        return Elicit(f"How should the {edition.binding} reach you? Postage is {_POSTAGE:.2f}.", Delivery)

    def total(
        edition: Annotated[Edition, Resolve(edition)],
        delivery: Annotated[Delivery, Resolve(delivery)],
        quote: Annotated[Quote, Resolve(quote, remember=True)],
    ) -> float:
        return quote.prices[edition.binding] + (_POSTAGE if delivery.way == "post" else 0)

    def consent(title: str, total: Annotated[float, Resolve(total)]) -> Elicit[Consent]:
        return Elicit(f"{title!r} comes to {total:.2f}. Place the order?", Consent)

    @server.tool(name=TOOL)
    def order_book(
        title: str,
        edition: Annotated[Edition, Resolve(edition)],
        delivery: Annotated[Delivery, Resolve(delivery)],
        quote: Annotated[Quote, Resolve(quote, remember=True)],
        total: Annotated[float, Resolve(total)],
        consent: Annotated[Consent, Resolve(consent)],
    ) -> Receipt:
        """Order a book."""
        if not consent.agreed:
            return Receipt(placed=False, summary=f"No order was placed for {title!r}.")
        way = "by post" if delivery.way == "post" else "for pickup"
        return Receipt(
            placed=True,
            summary=f"{title!r}, {edition.binding}, {way}, for {total:.2f} as quoted by {quote.given_by}.",
        )

    del order_book
    return server
