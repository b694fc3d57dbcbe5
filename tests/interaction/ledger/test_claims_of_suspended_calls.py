"""The claim of a suspended call is released, even if the writes before the release fail."""

from typing import Annotated, Any

import anyio
import pytest

from roundtrip import Context, Elicit, Resolve
from roundtrip.engine import claim
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import LegByLeg
from tests.interaction.ledger.shops import Shop, text_of
from tests.kit.hosts import WAIT

pytestmark = pytest.mark.anyio


class Hanging(MemoryLedger):
    """Ledger whose writes never end."""

    hung = False

    async def note(self, key: str, name: str, value: str, *, holder: str, epoch: int) -> bool:
        self.hung = True
        await anyio.sleep_forever()
        return False


async def ready() -> Elicit[bool]:
    return Elicit("Ready?", bool)


async def number(ready: Annotated[bool, Resolve(ready)]) -> int:
    return 7


async def test_a_claim_is_taken_back_though_noting_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "_LAST_WORDS_SECONDS", 0.05)
    ledger = Hanging()
    shop = Shop(ledger)

    async def ask(ctx: Context[Any, Any], drawn: Annotated[int, Resolve(number, once=True)]) -> str:
        return f"{drawn} {await ctx.ask('sure', 'Sure?', bool)}"

    shop.add(ask)
    legs = LegByLeg(shop)
    with anyio.fail_after(WAIT):
        await legs.leg("ask")
        await legs.leg("ask", answers={"ready": {"value": True}}, state=legs.token)
        assert ledger.hung
        # Were it still held, this would wait for its holder, and be answered that it still runs.
        told = await legs.leg("ask", answers={"sure": {"value": True}}, state=legs.token)
    assert text_of(told) == "7 True"
