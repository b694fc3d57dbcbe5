"""Copies of a leg that wait for its result, with nothing to end their wait except the ledger's announcement."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip.ledger import Ledger, MemoryLedger
from roundtrip.testing import LegByLeg
from tests.interaction.ledger.shops import Shop, text_of
from tests.interaction.ledger.waiter import PROMPT_SECONDS, connected, wait_for_call, without_looks
from tests.kit.forks import piped
from tests.kit.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def redis() -> Generator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.db")
    else:
        redis: RedisServer = request.getfixturevalue("redis")
        yield redis.url
        redis.command("flushall")


def both_ledgers(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> tuple[Ledger, Ledger]:
    """Return the ledgers of two instances."""
    if kind == "memory":
        ledger = MemoryLedger()
        return ledger, ledger
    address = str(tmp_path / "ledger.db") if kind == "sqlite" else request.getfixturevalue("redis").url
    return connected(address), connected(address)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
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

    with anyio.fail_after(PROMPT_SECONDS):
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


@pytest.mark.parametrize("address", ["sqlite", "redis"], indirect=True)
@pytest.mark.parametrize("is_released", [False, True])
def test_another_process_hears_how_a_claim_ended(address: str, tmp_path: Path, is_released: bool) -> None:
    async def claim() -> int:
        ledger = connected(address)
        answer = await ledger.claim("call", "a", holder="one", lease=60, keep=60)
        await ledger.aclose()
        return answer.epoch

    async def end(epoch: int) -> None:
        ledger = connected(address)
        if is_released:
            await ledger.release("call", holder="one", epoch=epoch)
        else:
            assert await ledger.settle("call", holder="one", epoch=epoch, result="r", keep=60)
        await ledger.aclose()

    epoch = anyio.run(claim)
    with piped(wait_for_call, address, cwd=tmp_path) as process:
        # The second time, it has begun to listen to other processes.
        assert [process.stdout.readline() for _ in range(2)] == ["waits\n"] * 2
        anyio.run(end, epoch)
        while (line := process.stdout.readline()) == "waits\n":
            pass
    assert line == ("free\n" if is_released else "r\n")
