"""`roundtrip worker`: tasks in processes that serve no requests."""

import os
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from tests.interaction.serving.services import Service, eventually, not_begun
from tests.interaction.tasks.effects import effects, holding
from tests.interaction.tasks.workshops import FOLDER, LEASE, PLACE, REDIS
from tests.kit.peer import WAIT_SECONDS, Peer, text_of
from tests.kit.programs import needs
from tests.kit.redis_server import RedisServer
from tests.kit.stores import SHARED, Servers, location_of
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio
SHOPS = "tests.interaction.tasks.workshops"


class Worker(Service):
    """A running `roundtrip worker`."""

    announces = re.compile(r"runs its tasks in (.*)")

    def words(self, target: str, *flags: str) -> list[str]:
        return ["worker", f"{SHOPS}:{target}", *flags]


def worker(folder: Path, *flags: str, target: str = "shop", **variables: str) -> Worker:
    return Worker(target, *flags, folder=folder, **{FOLDER: str(folder)}, **variables)


@asynccontextmanager
async def serving(folder: Path, target: str = "shop", **variables: str) -> AsyncGenerator[Peer]:
    """Serve requests, and leave tasks to workers."""
    given = {FOLDER: str(folder), "ROUNDTRIP_RUN_TASKS": "0", **variables}
    with Service(f"{SHOPS}:{target}", folder=folder, **given) as service:
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            yield Peer(http, service.url)


each_shop = pytest.mark.parametrize("target", ["shop", "fastmcp_shop", "mcpserver_shop"])


@each_shop
async def test_tasks_run_in_workers_and_not_in_servers(target: str, tmp_path: Path) -> None:
    async with serving(tmp_path, target) as peer:
        task = (await peer.call("build", secret="this"))["taskId"]
        await anyio.sleep(0.3)
        assert effects(tmp_path) == []
        assert (await peer.get(task))["status"] == "working"
        with worker(tmp_path, target=target) as running:
            await peer.asked(task, "size")
            await peer.answer(task, size=3)
            assert text_of(await peer.until(task)) == "first this 3"
            running.signal(signal.SIGTERM)
            assert running.ended() == 0
    assert effects(tmp_path) == ["first"]


async def test_running_leg_ends_before_its_worker(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        with worker(tmp_path) as running:
            task = (await peer.call("hold"))["taskId"]
            await holding(tmp_path)
            running.signal(signal.SIGTERM)
            late = (await peer.call("hold"))["taskId"]
            await anyio.sleep(0.2)
            (tmp_path / "go on").touch()
            assert await anyio.to_thread.run_sync(running.ended) == 0
            assert text_of(await peer.until(task)) == "done"
        # The stopping worker has claimed nothing more.
        assert len(effects(tmp_path)) == 2
        with worker(tmp_path):
            assert text_of(await peer.until(late)) == "done"


@pytest.mark.parametrize("flags", [("--timeout-graceful-shutdown", "0.2"), ()])
async def test_leg_that_is_given_up_goes_on_elsewhere_at_once(tmp_path: Path, flags: tuple[str, ...]) -> None:
    async with serving(tmp_path) as peer:
        with worker(tmp_path, *flags) as first:
            task = (await peer.call("hold"))["taskId"]
            await holding(tmp_path)
            first.signal(signal.SIGTERM)
            if not flags:
                # A repeated signal does not wait.
                await anyio.sleep(0.2)
                first.signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(first.ended) == 1
        (tmp_path / "go on").touch()
        with worker(tmp_path):
            assert text_of(await peer.until(task)) == "done"
    assert [line.split()[0] for line in effects(tmp_path)] == ["first", "held", "held"]


@each_shop
async def test_killed_process_of_several_is_followed_and_replaced(target: str, tmp_path: Path) -> None:
    async with serving(tmp_path, target) as peer:
        # No lease ends.
        flags = ("--workers", "2", "--concurrency", "1")
        with worker(tmp_path, *flags, target=target, **{LEASE: "1000"}) as running:
            tasks = [(await peer.call("hold"))["taskId"] for _ in range(2)]
            victim = (await holding(tmp_path, 2))[0]
            before = running.workers()
            os.kill(victim, signal.SIGKILL)
            await anyio.to_thread.run_sync(eventually, lambda: len(running.workers() - before) == 1)
            await holding(tmp_path, 3)
            (tmp_path / "go on").touch()
            for task in tasks:
                assert text_of(await peer.until(task)) == "done"
            running.signal(signal.SIGINT)
            assert await anyio.to_thread.run_sync(running.ended) == 0
    assert effects(tmp_path).count("first") == 2


@pytest.mark.parametrize("kind", SHARED)
async def test_leases_of_workers_that_serve_pass_on_at_once_when_all_die(
    kind: str, started: Servers, tmp_path: Path
) -> None:
    place = {FOLDER: str(tmp_path), PLACE: location_of(kind, started, tmp_path), LEASE: "1000"}
    with Service(f"{SHOPS}:placed_shop", "--workers", "2", folder=tmp_path, **place) as fleet:
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            peer = Peer(http, fleet.url)
            task = (await peer.call("hold"))["taskId"]
            first = await peer.call("pay")
            paid = await peer.ask("tools/call", name="pay", arguments={}, requestState=first["requestState"])
            await holding(tmp_path)
            await until(lambda: "paid" in effects(tmp_path))
            before = fleet.workers()
            for victim in before:
                os.kill(victim, signal.SIGKILL)
            await anyio.to_thread.run_sync(eventually, lambda: len(fleet.workers() - before) == 2)
            await holding(tmp_path, 2)
            (tmp_path / "go on").touch()
            assert text_of(await peer.until(task)) == "done"
            assert "unknown" in (await peer.until(paid["taskId"]))["error"]["message"]
    assert (effects(tmp_path).count("first"), effects(tmp_path).count("paid")) == (1, 1)


async def test_processes_are_replaced_one_after_another(tmp_path: Path) -> None:
    async with serving(tmp_path) as peer:
        with worker(tmp_path, "--workers", "2", "--timeout-graceful-shutdown", "0.2") as running:
            before = running.workers()
            task = (await peer.call("hold"))["taskId"]
            await holding(tmp_path)
            running.signal(signal.SIGHUP)
            await anyio.to_thread.run_sync(eventually, lambda: not running.workers() & before)
            (tmp_path / "go on").touch()
            assert text_of(await peer.until(task)) == "done"


@needs("redis")
async def test_worker_waits_for_a_store_that_is_down(tmp_path: Path, redis: RedisServer) -> None:
    redis.kill()
    variables = {REDIS: redis.url}
    with worker(tmp_path, target="redis_shop", **variables) as running:
        await anyio.to_thread.run_sync(eventually, lambda: any("cannot be run" in line for line in running.log))
        redis.start()
        async with serving(tmp_path, "redis_shop", **variables) as peer:
            task = (await peer.call("build", secret="this"))["taskId"]
            await peer.asked(task, "size")
    assert sum("cannot be run" in line for line in running.log) == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [("idle", "no tool that runs as a task"), ("forgetful", "got a MemoryLedger"), ("none", "no attribute")],
)
def test_worker_that_could_do_nothing_does_not_start(tmp_path: Path, target: str, said: str) -> None:
    message = not_begun(["worker", f"{SHOPS}:{target}"], folder=tmp_path, **{FOLDER: str(tmp_path)})
    assert said in message


def test_invalid_settings_of_a_worker_are_named(tmp_path: Path) -> None:
    command: list[Any] = ["worker", f"{SHOPS}:shop", "--concurrency", "0"]
    assert "--concurrency" in not_begun(command, folder=tmp_path, **{FOLDER: str(tmp_path)})
