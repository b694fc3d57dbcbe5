"""The bookshop before a deploy."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from roundtrip import Elicit, Resolve, Server
from roundtrip.trace.writing.recorder import Recorder


class Edition(BaseModel):
    binding: Literal["paperback", "hardcover"] = Field(description="Paperback or hardcover")


class Delivery(BaseModel):
    way: Literal["post", "pickup"] = Field(description="By post, or to be picked up")
    note: str = Field(default="", description="Anything the shop should know")


class Consent(BaseModel):
    agreed: bool = Field(description="Place the order")


def edition(title: str) -> Elicit[Edition]:
    return Elicit(f"Which edition of {title!r} would you like?", Edition)


def delivery(edition: Annotated[Edition, Resolve(edition)]) -> Elicit[Delivery]:
    return Elicit(f"How shall the {edition.binding} reach you?", Delivery)


def consent(title: str, delivery: Annotated[Delivery, Resolve(delivery)]) -> Elicit[Consent]:
    way = "by post" if delivery.way == "post" else "for pickup"
    return Elicit(f"{title!r} {way}. Place the order?", Consent)


def order_book(
    title: str,
    edition: Annotated[Edition, Resolve(edition)],
    delivery: Annotated[Delivery, Resolve(delivery)],
    consent: Annotated[Consent, Resolve(consent)],
) -> str:
    """Order a book."""
    return f"{title!r}, {edition.binding}, by {delivery.way}: {'ordered' if consent.agreed else 'not ordered'}."


def shop(recorder: Recorder) -> Server[Any]:
    server: Server[Any] = Server("bookshop", keys=["k" * 32], trace=recorder)
    server.tool()(order_book)
    return server
