"""A leg that is cancelled at each of its waits: it leaves nothing behind, and can be sent again."""

import asyncio
import gc
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip import Recorder, Server
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.ledger.contract import Ledger
from roundtrip.once import exactly_once
from roundtrip.testing import Era, User
from tests.interaction.cancelling.cutting import Cut, How, counting_tasks
from tests.interaction.cancelling.shops import HELD, LOG, SHOPS, Shop, is_balanced
from tests.interaction.trace.transcribed import raw_lines
from tests.kit.hosts import WAIT
from tests.kit.tiers import Tier, current_tier

pytestmark = pytest.mark.anyio
EARLY = 2
"""Which cut of each leg is looked at for what it keeps alive. To look at all of them would take long."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # A claim that could not be released is released again after a pause.
    monkeypatch.setattr(exactly_once, "_FIRST_PAUSE_SECONDS", 0.01)


def _cases() -> Iterator[Any]:
    for name, shop in SHOPS.items():
        # A task that ends cannot wait for its threads.
        # An asyncio task that is cancelled takes the same ways as a scope, and SQLite the same as memory.
        is_first = current_tier() is Tier.FIRST
        hows = [How.SCOPE] if shop.has_threads or is_first else [*How]
        ledgers = ["memory", "sqlite"] if shop.once and not is_first else ["memory"]
        for era, how, ledger in itertools.product(shop.eras, hows, ledgers):
            yield pytest.param(name, era, how, ledger, id=f"{name}-{era.value}-{how.value}-{ledger}")


@pytest.mark.parametrize(("name", "era", "how", "ledger_kind"), [*_cases()])
async def test_cancelled_leg_leaves_nothing_behind_and_can_be_retried(
    name: str, era: Era, how: How, ledger_kind: str, tmp_path: Path
) -> None:
    memory = ledger_kind == "memory"
    ledger: Ledger = MemoryLedger() if memory else SqliteLedger(tmp_path / "ledger.db", durable=False)
    cuts = at = 0
    leg = 1
    while True:
        at += 1
        cut = Cut(leg=leg, at=at, how=how)
        with anyio.fail_after(WAIT):
            await _call(SHOPS[name], cut, era, ledger, tmp_path / f"{leg}-{at}.jsonl")
        if at == EARLY:
            # At once, while the event loop still keeps the timers of clocks that have been stopped.
            gc.collect()
            assert not list(HELD), cut
        if cut.was_cut:
            cuts += 1
        elif cut.was_reached:
            leg, at = leg + 1, 0
        else:
            break
    await ledger.aclose()
    assert cuts
    gc.collect()
    with anyio.move_on_after(WAIT):
        # On a busy machine, the last legs may have left callbacks that the event loop has not run yet.
        while list(HELD):
            await anyio.sleep(0.01)
            gc.collect()
    assert not list(HELD), [type(holder) for held in HELD for holder in gc.get_referrers(held)]


async def _call(shop: Shop, cut: Cut, era: Era, ledger: Ledger, transcript: Path) -> None:
    """Make one call, one leg of which is cut short and sent again."""
    LOG.clear()
    server = Server("shop", trace=Recorder(transcript), ledger=ledger)
    shop.add(server)
    server.middleware.insert(0, cut)
    had_begun = False

    def look() -> None:
        nonlocal had_begun
        assert is_balanced() or shop.leaves_threads, LOG
        had_begun = "+body" in LOG

    cut.look = look
    with counting_tasks():
        call = await User(server, shop.answers, era=era, allow_error=True, allow_unused=True).call("order")
        if cut.tasks:
            _, pending = await asyncio.wait(cut.tasks, timeout=WAIT)
            assert not pending, cut
    assert not cut.left, cut
    assert is_balanced(), LOG
    said = call.failure or call.text
    if shop.once and had_begun and not cut.outlasted and said != shop.says:
        # A task that is cancelled from outside cannot outlast anything; it is unknown how far its body got.
        assert cut.how is How.TASK
        assert "the outcome of this call is unknown" in said
    else:
        assert said == shop.says, cut
    lines = raw_lines(transcript)
    ends = {"ended", "asked"} if era is Era.RETRY else {"ended"}
    began = [line["serving"] for line in lines if line["event"] == "began"]
    assert began == [line["serving"] for line in lines if line["event"] in ends], cut
