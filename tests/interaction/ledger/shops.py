"""A shop whose tools must run once."""

from collections.abc import Callable
from typing import Annotated, Any

from roundtrip import Elicit, Resolve, Server
from roundtrip.ledger import Ledger
from roundtrip.testing import LegByLeg

__all__ = ["KEY", "Shop", "asked_to_buy", "paid", "text_of"]

KEY = b"k" * 32


async def paid(what: str) -> Elicit[bool]:
    return Elicit(f"Pay for {what}?", bool)


class Shop:
    """Factory of a shop's instances, which share a ledger, with a record of their effects."""

    def __init__(self, ledger: Ledger, **options: Any) -> None:
        self.ledger = ledger
        self.ran: list[str] = []
        self.options = options
        self._bodies: list[tuple[Callable[..., Any], dict[str, Any]]] = []
        self.add(self.buy)

    async def buy(self, what: str, paid: Annotated[bool, Resolve(paid)]) -> str:
        """Buy something."""
        self.ran.append(what)
        return f"{what} no. {len(self.ran)}, {'paid' if paid else 'owed'}"

    def add(self, body: Callable[..., Any], **options: Any) -> None:
        self._bodies.append((body, options))

    def __call__(self, keys: Any = (KEY,)) -> Server:
        server = Server("shop", keys=keys, ledger=self.ledger, **self.options)
        for body, options in self._bodies:
            server.tool(body, exactly_once=True, **options)
        return server


async def asked_to_buy(shop: Shop, **options: Any) -> LegByLeg:
    """Start a call, up to its question."""
    legs = LegByLeg(shop, **options)
    await legs.leg("buy", {"what": "tea"})
    return legs


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content)
