"""The bookshop after a deploy: the second question says what postage costs."""

from typing import Annotated, Any

from roundtrip import Elicit, Resolve, Server
from roundtrip.trace.writing.recorder import Recorder
from tests.browser.shops.before import Consent, Delivery, Edition, edition


def delivery(edition: Annotated[Edition, Resolve(edition)]) -> Elicit[Delivery]:
    return Elicit(f"How shall we send you the {edition.binding}? Postage is 3.50.", Delivery)


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
