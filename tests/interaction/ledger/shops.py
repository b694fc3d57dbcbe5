"""A shop whose tools must run once, and legs whose clients leave."""

from collections.abc import Callable
from typing import Annotated, Any

import anyio

from roundtrip import Elicit, Resolve, Server
from roundtrip.ledger import Ledger
from roundtrip.testing import LegByLeg
from tests.kit.shops import KEY
from tests.kit.waiting import WAIT

__all__ = ["Shop", "asked_to_buy", "begun", "cut_short", "paid", "text_of"]


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

    async def give(self, what: str) -> str:
        """Give something, without a question; tests add it."""
        self.ran.append(what)
        return f"{what} no. {len(self.ran)}"

    def add(self, body: Callable[..., Any], **options: Any) -> None:
        # Some of the bodies ask nothing.
        once = {} if "once_per" in options else {"exactly_once": True, "uncovered": "round"}
        self._bodies.append((body, {**once, **options}))

    def __call__(self, keys: Any = (KEY,)) -> Server:
        server = Server("shop", keys=keys, ledger=self.ledger, **self.options)
        for body, options in self._bodies:
            server.tool(body, **options)
        return server


async def asked_to_buy(shop: Shop, **options: Any) -> LegByLeg:
    """Start a call, up to its question."""
    legs = LegByLeg(shop, **options)
    await legs.leg("buy", {"what": "tea"})
    return legs


async def begun(shop: Shop, body: Callable[..., Any], arguments: Any = None, **options: Any) -> LegByLeg:
    """Add a body to a shop, and start a call of it."""
    shop.add(body, **options)
    legs = LegByLeg(shop)
    await legs.leg(body.__name__, arguments)
    return legs


async def cut_short(legs: LegByLeg, tool: str, begun: anyio.Event, **more: Any) -> None:
    """Send a leg whose client leaves when its body has begun; the fixture `brief_shield` ends the body then."""
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: legs.leg(tool, state=legs.token, **more))
            await begun.wait()
            group.cancel_scope.cancel()


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content)
