"""A bookshop before and after a deploy, which rewords the second question."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from roundtrip import Elicit, Resolve, Server
from roundtrip.trace.writing.recorder import Recorder

__all__ = ["shop"]


class Edition(BaseModel):
    """Answer to the first question."""

    binding: Literal["paperback", "hardcover"] = Field(description="Paperback or hardcover")


class Delivery(BaseModel):
    """Answer to the second question."""

    way: Literal["post", "pickup"] = Field(description="By post, or to be picked up")
    note: str = Field(default="", description="Anything the shop should know")


class Consent(BaseModel):
    """Answer to the last question."""

    agreed: bool = Field(description="Place the order")


def edition(title: str) -> Elicit[Edition]:
    return Elicit(f"Which edition of {title!r} would you like?", Edition)


def shop(recorder: Recorder, *, tells_postage: bool) -> Server[Any]:
    """Return a build of the server; the newer one says what postage costs."""
    build = "after" if tells_postage else "before"
    server: Server[Any] = Server("bookshop", keys=["k" * 32], trace=recorder, build=build)

    def delivery(edition: Annotated[Edition, Resolve(edition)]) -> Elicit[Delivery]:
        if tells_postage:
            return Elicit(f"How shall we send you the {edition.binding}? Postage is 3.50.", Delivery)
        return Elicit(f"How shall the {edition.binding} reach you?", Delivery)

    def consent(title: str, delivery: Annotated[Delivery, Resolve(delivery)]) -> Elicit[Consent]:
        way = "by post" if delivery.way == "post" else "for pickup"
        return Elicit(f"{title!r} {way}. Place the order?", Consent)

    @server.tool()
    def order_book(
        title: str,
        edition: Annotated[Edition, Resolve(edition)],
        delivery: Annotated[Delivery, Resolve(delivery)],
        consent: Annotated[Consent, Resolve(consent)],
    ) -> str:
        """Order a book."""
        return f"{title!r}, {edition.binding}, by {delivery.way}: {'ordered' if consent.agreed else 'not ordered'}."

    return server
