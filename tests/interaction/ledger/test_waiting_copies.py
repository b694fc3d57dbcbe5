"""Copies of a leg that wait for its result, with nothing to end their wait except the ledger's announcement."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip.ledger import Ledger, MemoryLedger
from roundtrip.testing import LegByLeg
from tests.interaction.ledger.shops import Shop, text_of
from tests.interaction.ledger.waiter import connected, without_looks
from tests.kit.programs import needs
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


def both_ledgers(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> tuple[Ledger, Ledger]:
    """Return the ledgers of two instances."""
    if kind == "memory":
        ledger = MemoryLedger()
        return ledger, ledger
    address = str(tmp_path / "ledger.db") if kind == "sqlite" else request.getfixturevalue("redis").url
    return connected(address), connected(address)


@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("redis", marks=needs("redis"))])
async def test_copy_on_another_instance_gets_the_announced_result(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    ledgers = both_ledgers(request, kind, tmp_path)
    ended = anyio.Event()
    waits: list[None] = []
    ran: list[str] = []
    without_looks(monkeypatch.setattr, lambda: waits.append(None))

    async def slow() -> str:
        ran.append("slow")
        await ended.wait()
        return f"ran {len(ran)}"

    shops = [Shop(ledger) for ledger in ledgers]
    for shop in shops:
        shop.add(slow)
    first, second = (LegByLeg(shop) for shop in shops)
    await first.leg("slow")
    token = first.token
    told: list[Any] = []

    async def leg(legs: LegByLeg) -> None:
        told.append(text_of(await legs.leg("slow", state=token)))

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(leg, first)
            while not ran:  # noqa: ASYNC110 - no event
                await anyio.sleep(0.001)
            group.start_soon(leg, second)
            # The second time, it has begun to listen to other instances.
            while len(waits) < (1 if kind == "memory" else 2):  # noqa: ASYNC110 - no event
                await anyio.sleep(0.001)
            ended.set()
    assert (told, ran) == (["ran 1"] * 2, ["slow"])
    for ledger in ledgers:
        await ledger.aclose()
