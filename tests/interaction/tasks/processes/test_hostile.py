"""Requests of strangers, of late clients, and to a store that is down, over HTTP to processes of their own."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import httpx
import pytest

from tests.interaction.serving.services import Service
from tests.interaction.tasks.effects import effects
from tests.interaction.tasks.processes import shops
from tests.kit.peer import WAIT_SECONDS, Peer, text_of
from tests.kit.postgres_server import postgres_server
from tests.kit.programs import needs
from tests.kit.redis_server import redis_server
from tests.kit.stores import SHARED, Servers, location_of
from tests.kit.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
UNKNOWN: Final = {"code": -32602, "message": "Task not found"}
ARGUMENT: Final = "argument-4711"
ANSWER: Final = "answer-0815"
DONE: Final = f"{ARGUMENT} price of {ARGUMENT} {ANSWER}"


@asynccontextmanager
async def two_services(folder: Path, place: str) -> AsyncGenerator[list[Service]]:
    """Run two `roundtrip serve` on one store, and check their logs."""
    variables = {shops.FOLDER: str(folder), shops.PLACE: place}
    target = f"{shops.__name__}:shop"
    with Service(target, folder=folder, **variables) as one, Service(target, folder=folder, **variables) as two:
        yield [one, two]
    logged = "".join([*one.log, *two.log])
    assert "Traceback" not in logged
    for secret in (ARGUMENT, ANSWER, "Which word"):
        assert secret not in logged


@asynccontextmanager
async def user_of(service: Service, user: str) -> AsyncGenerator[Peer]:
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        yield Peer(http, service.url, headers={shops.USER: user})


def require_unlogged(task: str, *services: Service) -> None:
    """Check that no log has the part of a task's id that only its client knows."""
    assert not any(task.split(".")[1] in line for service in services for line in service.log)


async def replies(peer: Peer, task: str) -> list[dict[str, Any]]:
    """Return the responses to all methods of tasks."""
    answer = {"word": {"action": "accept", "content": {"value": "poison"}}}
    return [
        await peer.send("tasks/get", taskId=task),
        await peer.send("tasks/update", taskId=task, inputResponses=answer),
        await peer.send("tasks/cancel", taskId=task),
    ]


async def errors(peer: Peer, task: str) -> list[dict[str, Any]]:
    return [reply["error"] for reply in await replies(peer, task)]


@pytest.mark.parametrize("kind", SHARED)
async def test_tasks_of_others_and_unknown_keys_change_nothing(kind: str, started: Servers, tmp_path: Path) -> None:
    async with (
        two_services(tmp_path, location_of(kind, started, tmp_path)) as (one, two),
        user_of(one, "ann") as ann,
        user_of(two, "ann") as elsewhere,
        user_of(two, "bob") as bob,
    ):
        task = (await ann.call("ask", secret=ARGUMENT))["taskId"]
        await elsewhere.asked(task, "word")
        call_id, secret = task.split(".")
        forged = f"{call_id}.{'A' * len(secret)}"
        for peer, task_id in ((bob, task), (elsewhere, forged), (ann, call_id), (bob, "unknown")):
            assert await errors(peer, task_id) == [UNKNOWN] * 3
        # An answer to an unknown key is acknowledged and ignored, and so are further ones to a key.
        await elsewhere.answer(task, another="poison", **{"word#2": "poison"})
        await elsewhere.answer(task, word=ANSWER)
        await ann.answer(task, word="poison")
        ended = await ann.until(task)
        assert text_of(ended) == DONE
        for reply in await replies(elsewhere, task):
            assert "result" in reply
        assert await elsewhere.get(task) == await ann.get(task)
        assert text_of(await ann.get(task)) == DONE
    require_unlogged(task, one, two)


class Outage(NamedTuple):
    """A store that goes away and comes back."""

    place: str
    begin: Callable[[], None]
    end: Callable[[], None]


@pytest.fixture(
    params=[
        pytest.param("redis is killed", marks=needs("redis")),
        pytest.param("redis is stuck", marks=needs("redis")),
        pytest.param("postgres is killed", marks=needs("postgres")),
    ]
)
def outage(request: pytest.FixtureRequest) -> Generator[Outage]:
    if request.param == "postgres is killed":
        with postgres_server(durable=True) as postgres:
            yield Outage(f"postgres {postgres.url} tasks", postgres.kill, postgres.start)
        return
    with redis_server() as redis:
        ways = (redis.kill, redis.start) if request.param == "redis is killed" else (redis.stop, redis.go_on)
        yield Outage(f"redis {redis.url} tasks", *ways)


async def require_errors(peer: Peer, task: str) -> None:
    """Check that all requests that need the store say so, and that they may be sent again."""
    found: list[dict[str, Any]] = []

    async def send(method: str, **params: Any) -> None:
        found.append(await peer.send(method, **params))

    async with anyio.create_task_group() as group:
        group.start_soon(partial(send, "tasks/get", taskId=task))
        group.start_soon(partial(send, "tasks/update", taskId=task, inputResponses={"word": {"action": "decline"}}))
        group.start_soon(partial(send, "tasks/cancel", taskId=task))
        group.start_soon(partial(send, "tools/call", name="ask", arguments={"secret": ARGUMENT}))
        group.start_soon(partial(send, "subscriptions/listen", notifications={"taskIds": [task]}))
    for reply in found:
        assert (reply["error"]["code"], reply["error"]["data"]) == (-32000, {"reason": "ledger_unavailable"})
        assert "try again later" in reply["error"]["message"]
    assert len(found) == 5


async def test_store_that_is_down_loses_and_leaks_nothing(outage: Outage, tmp_path: Path) -> None:
    async with (
        two_services(tmp_path, outage.place) as (one, two),
        user_of(one, "ann") as ann,
        user_of(two, "ann") as elsewhere,
    ):
        asking = (await ann.call("ask", secret=ARGUMENT))["taskId"]
        await elsewhere.asked(asking, "word")
        running = (await ann.call("ship"))["taskId"]
        await until(lambda: "stopped" in effects(tmp_path))
        outage.begin()
        try:
            await require_errors(ann, asking)
            await require_errors(elsewhere, running)
            # The body goes on while the store is down, for longer than its lease.
            (tmp_path / "go on").touch()
            await anyio.sleep(1.5 * shops.LEASE_SECONDS)
        finally:
            outage.end()
        assert text_of(await elsewhere.until(running)) == "first step, second step"
        assert effects(tmp_path).count("first step") == 1
        assert set(await elsewhere.asked(asking, "word")) == {"word"}
        await ann.answer(asking, word=ANSWER)
        assert text_of(await elsewhere.until(asking)) == DONE
    assert "cannot" in "".join([*one.log, *two.log])
    require_unlogged(asking, one, two)
