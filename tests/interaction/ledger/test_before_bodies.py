"""Legs that are lost, or lose their claim, between the claim and the begin of the body."""

from typing import Annotated, Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Resolve
from roundtrip.ledger import LedgerDown, MemoryLedger
from roundtrip.server import exactly_once
from roundtrip.system import System
from roundtrip.testing import Clock, LegByLeg
from tests.interaction.ledger.shops import Shop, text_of
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "PATIENCE_SECONDS", 0.1)


class Silent(MemoryLedger):
    """Ledger that hears nothing more of a holder, as if its process were dead or stuck."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(system=System(monotonic=self.clock))

    def end_leases(self) -> None:
        self.clock.advance(exactly_once.LEASE_SECONDS + 1)

    async def renew(self, key: str, *, holder: str, epoch: int, lease: float) -> bool:
        raise LedgerDown("nothing is heard of it")

    async def release(self, key: str, *, holder: str, epoch: int | None = None) -> None:
        raise LedgerDown("nothing is heard of it")


class Looking:
    """Tool that looks something up before its body begins; the test ends the first lookup."""

    def __init__(self) -> None:
        self.ledger = Silent()
        self.shop = Shop(self.ledger)
        self.began = anyio.Event()
        self.go_on = anyio.Event()

        async def price() -> int:
            if not self.began.is_set():
                self.began.set()
                await self.go_on.wait()
            return 12

        async def look(price: Annotated[int, Resolve(price)]) -> str:
            self.shop.ran.append("look")
            return f"{price}, no. {len(self.shop.ran)}"

        self.shop.add(look)
        self.legs = LegByLeg(self.shop)

    async def first_leg(self) -> None:
        """Play the round without questions, which gives the call its id."""
        self.began.set()
        await self.legs.leg("look")
        self.began = anyio.Event()

    async def next_leg(self) -> str:
        """Return the reply to a leg after the lease of the silent holder has ended."""
        self.ledger.end_leases()
        return text_of(await self.legs.leg("look", state=self.legs.token))


async def test_process_dying_before_the_body_leaves_it_to_the_next() -> None:
    looking = Looking()
    await looking.first_leg()
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: looking.legs.leg("look", state=looking.legs.token))
            await looking.began.wait()
            group.cancel_scope.cancel()
        assert await looking.next_leg() == "12, no. 1"
    assert looking.shop.ran == ["look"]


async def test_leg_that_lost_its_claim_does_not_begin_its_body() -> None:
    looking = Looking()
    await looking.first_leg()
    told: list[Any] = []

    async def slow() -> None:
        with pytest.raises(MCPError) as caught:
            await looking.legs.leg("look", state=looking.legs.token)
        told.append(caught.value.error.data)

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(slow)
            await looking.began.wait()
            assert await looking.next_leg() == "12, no. 1"
            looking.go_on.set()
        assert text_of(await looking.legs.leg("look", state=looking.legs.token)) == "12, no. 1"
    assert [data["reason"] for data in told] == ["still_running"]
    assert looking.shop.ran == ["look"]
