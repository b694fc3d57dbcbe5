"""Calls in flight while instances are replaced one after another: by another build, and by other keys."""

import itertools
import random
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from tests.chaos.fleet.client import Asked, Client, Completed, Leg
from tests.chaos.fleet.processes import Fleet, fleet, until
from tests.kit.hosts import WAIT

pytestmark = pytest.mark.anyio

AT_ONCE = 12
THINKS = 0.2
MOST_ROUNDS = 12


@pytest.fixture
def tills() -> Generator[Fleet]:
    with fleet(2) as made:
        yield made


class Load:
    """Continuous calls, each by a client that answers every question."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=WAIT)
        self._client = Client(self._http, mischief=0)
        self._random = random.Random(8)
        self._numbers = itertools.count()
        self._under_way: set[int] = set()
        self.ends: dict[int, dict[str, Any]] = {}
        self.asked: dict[int, list[str]] = {}
        self._over = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Make calls during the block, and require all of them to end."""
        async with self._http, anyio.create_task_group() as group:
            for _ in range(AT_ONCE):
                group.start_soon(self._some)
            yield
            self._over = True

    async def drained(self) -> None:
        """Wait until every call that is under way has ended, while others are made."""
        old = set(self._under_way)
        await until(lambda: not old & self._under_way, "calls end", seconds=2 * WAIT)

    async def goes_on(self) -> None:
        """Wait until some more calls have ended."""
        enough = len(self.ends) + AT_ONCE // 2
        await until(lambda: len(self.ends) >= enough, "calls end", seconds=2 * WAIT)

    async def _some(self) -> None:
        while not self._over:
            number = next(self._numbers)
            self._under_way.add(number)
            await self._call(number)
            self._under_way.discard(number)

    async def _call(self, number: int) -> None:
        asked = self.asked.setdefault(number, [])
        answers = {"Who": f"payer {number}", "What": 7, "How": 10_000 + number, "Really": True, "Do": True}
        leg = Leg(number)
        while isinstance(reply := await self._client.deliver(leg), Asked):
            asked.extend(f"{key}: {text}" for key, text in reply.questions)
            assert len(asked) <= MOST_ROUNDS, asked
            await anyio.sleep(self._random.uniform(0, THINKS))
            leg = Leg(number, reply.state, tuple((key, answers[text.split()[0]]) for key, text in reply.questions))
        assert isinstance(reply, Completed), reply
        self.ends[number] = dict(reply.result)


async def roll_out(tills: Fleet, load: Load, *options: str) -> None:
    """Replace the instances one after another; in between, the legs of calls alternate between old and new."""
    for instance in tills.instances:
        await instance.stop()
        instance.start(*options)
        await instance.ready()
        await load.goes_on()


async def test_rolling_out_a_build_and_key_loses_no_call(tills: Fleet) -> None:
    await tills.ready()
    load = Load(tills.url)
    async with load.running():
        await load.drained()
        await roll_out(tills, load, "--keys", "old,new")
        await roll_out(tills, load, "--keys", "new,old", "--build", "2")
        # The old key goes when no token of its is left.
        await load.drained()
        await roll_out(tills, load, "--keys", "new", "--build", "2")
        await load.drained()
    for number, end in load.ends.items():
        assert (end["number"], end["payer"], end["euros"]) == (number, f"payer {number}", 10_000 + number)
        assert end.get("tip", 7) == 7
        # Back on the old build, a call is asked again what the new one has renamed or reworded; nothing else ever is.
        keys = [question.partition(":")[0] for question in load.asked[number]]
        assert keys.count("euros") == 1
        assert keys.count("tip") <= 1
    crossings = {(end["began"], end["ended"]) for end in load.ends.values()}
    assert ("1 old", "2 new") in crossings, crossings
    assert ("2 new", "2 new") in crossings
    assert all(("tip" in end) is end["ended"].startswith("2") for end in load.ends.values())
