"""Four processes behind nginx, with a tool that must run once: replays, deaths, and clocks that disagree."""

from collections.abc import Generator
from contextlib import AsyncExitStack

import anyio
import httpx
import pytest

from tests.chaos.fleet.attack import Plan, attack, script
from tests.chaos.fleet.client import Asked, Client, Completed, Leg, Reply
from tests.chaos.fleet.instance import done_key, opened
from tests.chaos.fleet.processes import Fleet, fleet
from tests.kit.hosts import WAIT

pytestmark = pytest.mark.anyio

REPLAYS = 50


@pytest.fixture(scope="module")
def tills() -> Generator[Fleet]:
    with fleet(4, "--lease", "2") as made:
        yield made


async def clients_of(tills: Fleet, stack: AsyncExitStack, path: str = "/mcp") -> list[Client]:
    """Return a client of each instance, past nginx, with a reliable network."""
    await tills.ready()
    https = [httpx.AsyncClient(base_url=instance.url, timeout=WAIT) for instance in tills.instances]
    return [Client(await stack.enter_async_context(http), mischief=0, path=path) for http in https]


async def last_leg(number: int, *clients: Client) -> Leg:
    """Return the last leg of a call, after sending the others to these clients in turn."""
    leg = Leg(number)
    for at, (key, question, answer) in enumerate(script(number)):
        asked = await clients[at % len(clients)].deliver(leg)
        assert isinstance(asked, Asked)
        assert asked.questions == ((key, question),)
        leg = Leg(number, asked.state, ((key, answer),), last=key == "sure")
    return leg


async def begun(tills: Fleet, number: int) -> int:
    """Return the number of times that the body of a call has run."""
    books = opened(tills.redis)
    times = await books.hget(done_key(number), "begun")
    await books.aclose()
    return int(times or 0)


@pytest.mark.parametrize(("path", "number"), [("/mcp", 1_000_000), ("/file", 1_000_001)])
async def test_fifty_copies_of_a_last_leg_run_one_body(tills: Fleet, path: str, number: int) -> None:
    replies: list[Reply] = []

    async def replay(client: Client, leg: Leg) -> None:
        replies.append(await client.deliver(leg))

    with anyio.fail_after(2 * WAIT):
        async with AsyncExitStack() as stack:
            clients = await clients_of(tills, stack, path)
            leg = await last_leg(number, *clients)
            async with anyio.create_task_group() as group:
                for copy in range(REPLAYS):
                    group.start_soon(replay, clients[copy % len(clients)], leg)
    assert await begun(tills, number) == 1
    assert len(replies) == REPLAYS
    assert isinstance(replies[0], Completed)
    assert set(replies) == {replies[0]}


async def test_calls_survive_an_attack_on_instances_requests_responses_and_clocks(tills: Fleet) -> None:
    """The same at full size: `python -m tests.chaos.fleet`."""
    await tills.ready()
    report = await attack(Plan(calls=60, kills=4, seed=3), tills)
    assert report.wrong == []
    assert report.counted["completed"] + report.counted["unknown"] == 60
    assert report.counted["instances killed"] == 4
    assert report.counted["unknown: its process died inside the body"] >= 1
    assert report.counted["passed on by nginx to another instance"] >= 1


async def test_call_survives_clocks_45_seconds_apart_but_not_90(tills: Fleet) -> None:
    for instance, skew in zip(tills.instances, (-45, 0, 45), strict=False):
        if instance.pid is not None:
            instance.kill()
        instance.start("--skew", str(skew))
    with anyio.fail_after(4 * WAIT):
        async with AsyncExitStack() as stack:
            slow, true, fast, _ = await clients_of(tills, stack)
            pairs = [(fast, true), (true, fast), (slow, true), (true, slow)]
            for number, (first, second) in enumerate(pairs, start=2_000_000):
                leg = await last_leg(number, first, second)
                end = await second.deliver(leg)
                assert isinstance(end, Completed)
                assert await first.deliver(leg) == end
                assert await begun(tills, number) == 1
            # A token may come from at most a minute ahead. That it does not run what it refuses is all there is to it.
            with pytest.raises(AssertionError, match="Invalid or expired requestState"):
                await last_leg(3_000_000, fast, slow)
            assert isinstance(await fast.deliver(await last_leg(3_000_001, slow, fast, fast)), Completed)
