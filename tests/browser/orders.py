"""Record calls with real servers: three instances serve an order, with a deploy in the middle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import anyio

from roundtrip import Elicit, Resolve, Server
from roundtrip.demo.shop import Consent, Delivery, Edition
from roundtrip.testing import LegByLeg
from roundtrip.trace.writing.recorder import Recorder
from tests.browser.ui.asking_tasks import run

__all__ = ["record_order"]

_ARGUMENTS: Final = {"title": "Dune"}
_ANSWERS: Final[Sequence[dict[str, Any]]] = (
    {"edition": {"binding": "hardcover"}},
    {"delivery": {"way": "post", "note": "Ring twice"}},
    {"delivery": {"way": "post", "note": "Ring twice"}},
    {"consent": {"agreed": True}},
)


def edition(title: str) -> Elicit[Edition]:
    return Elicit(f"Which edition of {title!r} would you like?", Edition)


def shop(recorder: Recorder, *, tells_postage: bool) -> Server[Any]:
    """Return a build of the server; the newer one says what postage costs."""
    build = "1.5" if tells_postage else "1.4"
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


def record_order(path: Path, *, rounds: int = len(_ANSWERS), pause: float = 0.0) -> None:
    """Record an order in five legs; with fewer `rounds` of answers, it waits for the next ones."""
    run(lambda: _order(path, rounds, pause))


async def _order(path: Path, rounds: int, pause: float) -> None:
    servers = [
        shop(_recorder(path, "ash"), tells_postage=False),
        shop(_recorder(path, "birch"), tells_postage=False),
        *[shop(_recorder(path, "cedar"), tells_postage=True)] * 3,
    ]
    hopper = LegByLeg(servers)
    await hopper.leg("order_book", _ARGUMENTS)
    for answers in _ANSWERS[:rounds]:
        await anyio.sleep(pause)
        await hopper.leg("order_book", _ARGUMENTS, answers=answers, state=hopper.token)


def _recorder(path: Path, instance: str) -> Recorder:
    return Recorder(path, reveal="all", instance=instance)
