"""`DocketEngine`: tasks that Docket delivers to workers, those of its own command line and of roundtrip's."""

import http.client
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx
import pytest
import redis

from roundtrip import Context, DocketEngine, InvalidSignature, Server
from roundtrip.ledger import MemoryLedger, RedisLedger
from tests.interaction.serving.services import WAIT, Service, environment, eventually
from tests.interaction.tasks.effects import effects, holding
from tests.interaction.tasks.processes.docket_shop import CLASS, DOCKET, FOLDER, KEY, NAME, REDIS
from tests.kit.hosts import ROOT, free_port
from tests.kit.peer import WAIT_SECONDS, Peer, peers, text_of
from tests.kit.programs import needs
from tests.kit.redis_server import RedisServer, redis_server
from tests.kit.tables import check_each

pytestmark = [pytest.mark.anyio, needs("redis")]
MODULE = "tests.interaction.tasks.processes.docket_shop"


class DocketWorker(Service):
    """A running `docket worker`."""

    announces = re.compile(r"(roundtrip_leg)\(")
    program = "docket"

    def words(self, target: str, *flags: str) -> list[str]:
        return ["worker", "--tasks", f"{MODULE}:tasks", "--docket", NAME, "--url", target, *flags]

    def _start(self, command: list[str], env: dict[str, str], stderr: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", self.program, *command]
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=stderr, stderr=stderr)

    @property
    def pid(self) -> int:
        return self.process.pid


class Worker(DocketWorker):
    """A running `roundtrip worker`."""

    announces = re.compile(r"runs its tasks in (.*)")
    program = "roundtrip"

    def words(self, target: str, *flags: str) -> list[str]:
        return ["worker", f"{MODULE}:shop", *flags]


@pytest.fixture
def store(redis: RedisServer) -> RedisServer:
    return redis


@asynccontextmanager
async def serving(folder: Path, store: RedisServer, *, works: bool = False, **variables: str) -> AsyncGenerator[Peer]:
    """Serve requests, and leave tasks to workers."""
    given = {FOLDER: str(folder), REDIS: store.url, "ROUNDTRIP_RUN_TASKS": str(int(works)), **variables}
    with Service(f"{MODULE}:shop", folder=folder, **given) as service:
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
            yield Peer(client, service.url)


def worker(
    folder: Path, store: RedisServer, *flags: str, kind: type[DocketWorker] = DocketWorker, **variables: str
) -> DocketWorker:
    flags = flags if kind is Worker else ("--redelivery-timeout", "2s", *flags)
    return kind(store.url, *flags, folder=folder, **{FOLDER: str(folder), REDIS: store.url, **variables})


def go_on(folder: Path) -> None:
    (folder / "go on").touch()


@pytest.mark.parametrize("name", ["Server", "FastMCP", "MCPServer"])
@pytest.mark.parametrize("kind", [DocketWorker, Worker])
async def test_worker_serves_tasks_of_a_server(
    name: str, kind: type[DocketWorker], tmp_path: Path, store: RedisServer
) -> None:
    async with serving(tmp_path, store, works=False, **{CLASS: name}) as peer:
        task = (await peer.call("build", secret="this"))["taskId"]
        await anyio.sleep(0.3)
        assert effects(tmp_path) == []
        with worker(tmp_path, store, kind=kind, **{CLASS: name}) as running:
            await peer.asked(task, "size")
            await peer.answer(task, size=3)
            assert text_of(await peer.until(task)) == "first this 3"
            running.signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(running.ended) == 0
    assert effects(tmp_path) == ["first"]


async def test_killed_worker_is_followed_behind_its_stored_steps(tmp_path: Path, store: RedisServer) -> None:
    async with serving(tmp_path, store) as peer:
        with worker(tmp_path, store) as one:
            task = (await peer.call("hold"))["taskId"]
            (victim,) = await holding(tmp_path)
            assert victim == one.pid
            with worker(tmp_path, store) as other:
                os.kill(victim, signal.SIGKILL)
                assert (await holding(tmp_path, 2))[1] == other.pid
                go_on(tmp_path)
                assert text_of(await peer.until(task)) == "held"
    assert effects(tmp_path).count("first") == 1


async def test_retries_timeouts_and_progress_work_by_docket(tmp_path: Path, store: RedisServer) -> None:
    async with serving(tmp_path, store) as peer:
        with worker(tmp_path, store, "--concurrency", "1"):
            task = await peer.until((await peer.call("call"))["taskId"])
            assert text_of(task) == "step"
            assert task["statusMessage"] == "called (3 of 3)"
            assert effects(tmp_path) == ["step", "attempt 1", "attempt 2", "attempt 3"]
            task = (await peer.call("hurry"))["taskId"]
            await peer.asked(task, "sure")
            # Longer than the timeout of a leg.
            await anyio.sleep(0.6)
            await peer.answer(task, sure=False)
            ended = await peer.until(task)
    assert ended["status"] == "failed"
    assert ended["error"]["data"]["reason"] == "tool_timeout"


async def test_cancelled_task_stops_in_its_worker(tmp_path: Path, store: RedisServer) -> None:
    async with serving(tmp_path, store) as peer:
        with worker(tmp_path, store, "--concurrency", "1"):
            task = (await peer.call("hold"))["taskId"]
            await holding(tmp_path)
            await peer.ask("tasks/cancel", taskId=task)
            await anyio.to_thread.run_sync(eventually, lambda: "cancelled" in effects(tmp_path))
            assert (await peer.get(task))["status"] == "cancelled"
            # The only slot of the worker is free again.
            task = await peer.until((await peer.call("call"))["taskId"])
            assert task["status"] == "completed"


async def test_lost_message_is_sent_again_by_the_sweep(tmp_path: Path, store: RedisServer) -> None:
    async with serving(tmp_path, store) as peer:
        task = (await peer.call("build", secret="this"))["taskId"]
        await anyio.to_thread.run_sync(eventually, lambda: int(store.command("xlen", f"{NAME}:stream") or 0) == 1)
        for key in store.command("keys", f"{NAME}:*").split():
            store.command("del", key)
        with worker(tmp_path, store):
            await peer.asked(task, "size")


async def test_docket_has_nothing_but_the_id_of_the_call(tmp_path: Path, store: RedisServer) -> None:
    async with serving(tmp_path, store) as peer:
        task = (await peer.call("build", secret="argument-4711"))["taskId"]
        call, secret = task.split(".")
        await anyio.to_thread.run_sync(eventually, lambda: int(store.command("xlen", f"{NAME}:stream") or 0) == 1)
        client: Any = cast("Any", redis.Redis).from_url(store.url)
        ((_, message),) = client.xrange(f"{NAME}:stream")
        assert set(message) <= {b"key", b"when", b"function", b"args", b"kwargs", b"attempt", b"generation"}
        assert (message[b"key"], message[b"function"]) == (f"{call}.0".encode(), b"roundtrip_leg")
        assert (pickle.loads(message[b"args"]), pickle.loads(message[b"kwargs"])) == ((call,), {})
        client.close()
        with worker(tmp_path, store) as running:
            await peer.asked(task, "size")
            await peer.answer(task, size=815)
            assert "815" in text_of(await peer.until(task))
            running.signal(signal.SIGTERM)
            await anyio.to_thread.run_sync(running.ended)
    # Every command that Redis has ever got, for Docket and for the ledger.
    written = b"".join(path.read_bytes() for path in Path(store.url.removeprefix("unix://")).parent.rglob("*.aof"))
    assert call.encode() in written
    for private in (b"argument-4711", b"How large", secret.encode(), b"peer of tasks"):
        assert private not in written


async def test_stopping_worker_gives_its_legs_up(tmp_path: Path, store: RedisServer) -> None:
    async with serving(tmp_path, store) as peer:
        with worker(tmp_path, store) as one:
            task = (await peer.call("hold"))["taskId"]
            await holding(tmp_path)
            one.signal(signal.SIGTERM)
            # A repeated signal does not wait for the leg.
            await anyio.to_thread.run_sync(eventually, lambda: any("initiating" in line for line in one.log))
            one.signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(one.ended) == 0
        with worker(tmp_path, store):
            await holding(tmp_path, 2)
            go_on(tmp_path)
            assert text_of(await peer.until(task)) == "held"
    assert [line.split()[0] for line in effects(tmp_path)] == ["first", "held", "cancelled", "held"]


async def test_error_that_nothing_expects_does_not_end_the_worker(tmp_path: Path, store: RedisServer) -> None:
    async with serving(tmp_path, store) as peer:
        with worker(tmp_path, store) as running:
            task = (await peer.call("end"))["taskId"]
            await anyio.to_thread.run_sync(eventually, lambda: "raised" in effects(tmp_path))
            go_on(tmp_path)
            # The lease of the leg lapses first.
            assert text_of(await peer.until(task)) == "ended"
            assert running.process.poll() is None


async def test_docket_limits_the_legs_of_all_workers_and_counts_them(tmp_path: Path, store: RedisServer) -> None:
    port = free_port()
    flags = ["--dependencies", f"{MODULE}:limits", "--metrics-port", str(port)]
    async with serving(tmp_path, store) as peer:
        with worker(tmp_path, store, *flags) as one, worker(tmp_path, store, *flags[:2]) as other:
            tasks = [(await peer.call("hold"))["taskId"] for _ in range(2)]
            (holder,) = await holding(tmp_path)
            waiting = f"{NAME}:concurrency:roundtrip_leg:waiters"
            await anyio.to_thread.run_sync(eventually, lambda: store.command("xlen", waiting) == "1")
            assert holder in (one.pid, other.pid)
            assert await holding(tmp_path) == [holder]
            go_on(tmp_path)
            for task in tasks:
                assert text_of(await peer.until(task)) == "held"

            def counted() -> str:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
                connection.request("GET", "/metrics")
                return connection.getresponse().read().decode()

            found = await anyio.to_thread.run_sync(counted)
    assert re.search(r'docket_tasks_started\S*\{[^}]*docket_task="roundtrip_leg"', found), found


async def test_tasks_wait_for_dockets_redis(tmp_path: Path, store: RedisServer) -> None:
    with redis_server() as dockets:
        variables = {DOCKET: dockets.url}
        async with serving(tmp_path, store, works=True, **variables) as peer:
            dockets.kill()
            task = (await peer.call("build", secret="this"))["taskId"]
            assert (await peer.get(task))["status"] == "working"
            dockets.start()
            await peer.asked(task, "size")


async def test_server_runs_its_tasks_itself_by_default(store: RedisServer) -> None:
    engine = DocketEngine(store.url, name="own")
    ledger = RedisLedger(store.url, prefix="own-ledger")
    server = Server[Any]("shop", keys=[KEY], ledger=ledger, task_engine=engine)

    @server.tool(task=True)
    async def buy(ctx: Context) -> str:
        paid = await ctx.wait_for("payment", timeout=100)
        return f"{paid} {await ctx.ask('sure', 'Sure?', bool)} on leg {ctx.call.leg}"

    async with peers(server) as (peer,):
        task = (await peer.call("buy"))["taskId"]
        assert await server.signal(task.split(".")[0], "payment", 3)
        await peer.asked(task, "sure")
        await peer.answer(task, sure=True)
        assert text_of(await peer.until(task)).startswith("3 True on leg ")
    await ledger.aclose()


async def test_worker_of_another_docket_does_not_start(tmp_path: Path, store: RedisServer) -> None:
    words = ["worker", "--tasks", f"{MODULE}:tasks", "--docket", "other", "--url", store.url]
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-m", "docket", *words],
            cwd=ROOT,
            env=environment(**{FOLDER: str(tmp_path), REDIS: store.url}),
            capture_output=True,
            text=True,
            timeout=WAIT,
        )
    )
    assert done.returncode == 1
    assert "must read the docket 'shop', got 'other'" in done.stderr + done.stdout


def test_invalid_settings_of_an_engine_are_refused() -> None:
    memory = "no other process or event loop could reach it"
    invalid: list[tuple[str, dict[str, Any], str]] = [
        ("memory://shop", {}, memory),
        ("localhost:6379", {}, "url must"),
        ("http://redis.internal", {}, "url must"),
        ("redis://localhost", {"redelivery": 0}, "redelivery must be a number of seconds greater than 0, got 0"),
    ]
    check_each(invalid, _require_refusal)


def _require_refusal(url: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        DocketEngine(url, **options)
    assert said in str(refused.value)


def test_ledger_in_memory_is_refused() -> None:
    server = Server[Any]("shop", keys=[KEY], ledger=MemoryLedger(), task_engine=DocketEngine("redis://localhost"))
    with pytest.raises(InvalidSignature, match="needs a ledger that its workers can reach, got MemoryLedger"):
        server.add_tool(lambda: "", name="work", task=True)


def test_engine_belongs_to_one_server() -> None:
    engine = DocketEngine("redis://localhost")
    servers = [
        Server[Any]("shop", keys=[KEY], ledger=RedisLedger("redis://localhost"), task_engine=engine) for _ in range(2)
    ]
    servers[0].add_tool(lambda: "", name="work", task=True)
    with pytest.raises(InvalidSignature, match="belongs to one server"):
        servers[1].add_tool(lambda: "", name="work", task=True)
