"""Processes that wait for the end of a claim, with nothing but the ledger's announcement to end their wait."""

from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from tests.interaction.ledger.waiter import connected, wait_for_call
from tests.kit.forks import piped
from tests.kit.programs import needs
from tests.kit.redis_server import RedisServer


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.db")
    else:
        redis: RedisServer = request.getfixturevalue("redis")
        yield redis.url
        redis.command("flushall")


@pytest.mark.parametrize("address", ["sqlite", pytest.param("redis", marks=needs("redis"))], indirect=True)
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
