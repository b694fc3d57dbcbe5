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


@pytest.mark.parametrize(("path", "number"), [("/mcp", 1_000_000), ("/file", 1_000_001)])
async def test_fifty_copies_of_a_last_leg_run_one_body(tills: Fleet, path: str, number: int) -> None:
    """Send legs to the instances in turn, past nginx, over a reliable network."""
    await tills.ready()
    replies: list[Reply] = []

    async def replay(client: Client, leg: Leg) -> None:
        replies.append(await client.deliver(leg))

    with anyio.fail_after(2 * WAIT):
        async with AsyncExitStack() as stack:
            https = [httpx.AsyncClient(base_url=instance.url, timeout=WAIT) for instance in tills.instances]
            clients = [Client(await stack.enter_async_context(http), mischief=0, path=path) for http in https]
            leg = Leg(number)
            for client, (key, question, answer) in zip(clients, script(number), strict=False):
                asked = await client.deliver(leg)
                assert isinstance(asked, Asked)
                assert asked.questions == ((key, question),)
                leg = Leg(number, asked.state, ((key, answer),), last=key == "sure")
            async with anyio.create_task_group() as group:
                for copy in range(REPLAYS):
                    group.start_soon(replay, clients[copy % len(clients)], leg)
    books = opened(tills.redis)
    assert await books.hget(done_key(number), "begun") == "1"
    await books.aclose()
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
