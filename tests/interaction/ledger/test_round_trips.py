"""Count the round trips to Redis that a leg of a tool that runs once takes."""

import socket
from collections.abc import Generator
from typing import Annotated, Any, Final

import pytest
from mcp_types import InputRequiredResult

from roundtrip import Context, Resolve
from roundtrip.ledger import RedisLedger
from roundtrip.testing import LegByLeg
from tests.interaction.ledger.shops import Shop, text_of
from tests.kit.programs import needs
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

TEA: Final[dict[str, Any]] = {"what": "tea"}


class Monitor:
    """Connection on which Redis reports every command of all clients."""

    def __init__(self, redis: RedisServer) -> None:
        self._redis = redis
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WAIT)
            connection.connect(redis.url.removeprefix("unix://"))
            connection.sendall(b"MONITOR\r\n")
            self._lines = connection.makefile("rb")
        assert self._lines.readline() == b"+OK\r\n"

    def commands(self) -> list[str]:
        """Return the names of the commands since the last time, without those that scripts ran."""
        self._redis.command("echo", "end")
        found: list[str] = []
        while b'"echo" "end"' not in (line := self._lines.readline()):
            client, _, command = line.partition(b"] ")
            assert command, line
            if not client.endswith(b"lua"):
                found.append(command.split(b'"')[1].decode())
        return found

    def close(self) -> None:
        self._lines.close()


@pytest.fixture
def monitor(redis: RedisServer) -> Generator[Monitor]:
    monitor = Monitor(redis)
    yield monitor
    monitor.close()


async def price() -> int:
    return 12


class Stall(Shop):
    """Shop whose tools need different things before their bodies."""

    def __init__(self, ledger: RedisLedger, **options: Any) -> None:
        super().__init__(ledger)
        for body in (self.give, self.look, self.haggle, self.weigh):
            self.add(body, **options)

    async def give(self, what: str) -> str:
        return what

    async def look(self, what: str, price: Annotated[int, Resolve(price)]) -> str:
        return f"{what} {price}"

    async def haggle(self, what: str, ctx: Context[Any, Any]) -> str:
        return f"{what} {await ctx.ask('price', 'How much?', int)}"

    async def weigh(self, what: str, ctx: Context[Any, Any]) -> str:
        return f"{what} {await ctx.step('grams', price)}"


ANSWERS: Final[dict[str, Any]] = {"paid": True, "price": 12}


async def trips(stall: Stall, tool: str, monitor: Monitor) -> list[int]:
    """Return the commands that each leg of a call sends, and that its last leg sends when it arrives again."""
    legs = LegByLeg(stall)
    sent: list[int] = []

    async def leg(**retry: Any) -> Any:
        result = await legs.leg(tool, TEA, **retry)
        names = monitor.commands()
        assert set(names) <= {"EVALSHA"}, names
        sent.append(len(names))
        return result

    result = await leg()
    retry: dict[str, Any] = {}
    while isinstance(result, InputRequiredResult):
        retry = {"answers": {key: ANSWERS[key] for key in result.input_requests or {}}, "state": legs.token}
        result = await leg(**retry)
    assert text_of(await leg(**retry)) == text_of(result)
    return sent


async def warm_up(stall: Stall, monitor: Monitor) -> None:
    """Open the connection, and load the scripts."""
    legs = LegByLeg(stall)
    await legs.leg("look", TEA)
    await legs.leg("look", TEA, state=legs.token)
    monitor.commands()


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        pytest.param("give", [0, 2, 1], id="nothing-first"),
        pytest.param("haggle", [0, 2, 2, 1], id="question-in-the-body"),
        pytest.param("buy", [0, 3, 1], id="question-of-a-resolver"),
        pytest.param("look", [0, 3, 1], id="resolver"),
        pytest.param("weigh", [0, 3, 1], id="one-step"),
    ],
)
@needs("redis")
async def test_leg_takes_few_round_trips_to_redis(
    redis: RedisServer, monitor: Monitor, tool: str, expected: list[int]
) -> None:
    ledger = RedisLedger(redis.url, prefix=tool)
    stall = Stall(ledger)
    await warm_up(stall, monitor)
    assert await trips(stall, tool, monitor) == expected
    await ledger.aclose()


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        pytest.param("give", [2, 1], id="nothing-first"),
        pytest.param("haggle", [2, 2, 1], id="question-in-the-body"),
        pytest.param("look", [3, 1], id="resolver"),
        pytest.param("weigh", [3, 1], id="one-step"),
    ],
)
@needs("redis")
async def test_leg_with_an_intent_takes_no_more(
    redis: RedisServer, monitor: Monitor, tool: str, expected: list[int]
) -> None:
    ledger = RedisLedger(redis.url, prefix=f"intent-{tool}")
    stall = Stall(ledger, once_per="{what}", scope="service")
    legs = LegByLeg(stall)
    await legs.leg("look", {"what": "warm"})
    await legs.leg("look", {"what": "warm"})
    await legs.leg("haggle", {"what": "warm"})
    monitor.commands()
    assert await trips(stall, tool, monitor) == expected
    await ledger.aclose()


@needs("redis")
async def test_each_operation_with_notes_is_one_request(redis: RedisServer, monitor: Monitor) -> None:
    ledger = RedisLedger(redis.url, prefix="notes")
    asked: dict[str, Any] = {"holder": "one", "lease": 60, "keep": 60, "is_bound": True, "notes": {"a": "1", "b": "2"}}
    sent: list[list[str]] = []
    # The first pass opens the connection, and loads the scripts.
    for key in ("first", "second"):
        monitor.commands()
        await ledger.claim(key, "a", **asked)
        await ledger.release(key, holder="one", notes={"a": "2", "c": "3"})
        epoch = (await ledger.claim(key, "a", **asked)).epoch
        await ledger.settle(key, holder="one", epoch=epoch, result="r", keep=60)
        epoch = (await ledger.claim(key, "a", voids=epoch, **asked)).epoch
        await ledger.settle(key, holder="one", epoch=epoch, result="r", keep=60, declined_for=60)
        sent.append(monitor.commands())
    assert sent[-1] == ["EVALSHA"] * 6
    await ledger.aclose()
