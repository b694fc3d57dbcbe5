"""Tasks of servers in processes of their own, which are killed."""

import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from roundtrip.machine.table import State
from roundtrip.trace.explaining.stories import failure_of
from roundtrip.trace.page.data import data_of
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import files_of, read_files
from roundtrip.trace.writing.names import TRACE_VARIABLE
from tests.interaction.tasks.effects import effects
from tests.interaction.tasks.processes import shops
from tests.kit.hosts import HttpProcess
from tests.kit.peer import WAIT_SECONDS, Peer, text_of
from tests.kit.stores import SHARED, Servers, location_of
from tests.kit.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture(params=SHARED)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def instances(kind: str, started: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv(shops.FOLDER, str(tmp_path))
    monkeypatch.setenv(shops.PLACE, location_of(kind, started, tmp_path))
    with HttpProcess() as one, HttpProcess() as two:
        yield one, two


async def stopped(folder: Path) -> None:
    await until(lambda: "stopped" in effects(folder))


def at_rest(kind: str, started: Servers, folder: Path) -> bytes:
    """Return everything that a store has."""
    match kind:
        case "sqlite":
            return b"".join(path.read_bytes() for path in folder.glob("tasks.db*"))
        case "redis":
            log = Path(started.redis.command("config", "get", "dir").splitlines()[-1], "appendonlydir")
            return b"".join(path.read_bytes() for path in log.iterdir())
        case _:
            schema = os.environ[shops.PLACE].split(" ")[2]
            tables = [f"SELECT t::text FROM {schema}.{table} AS t" for table in ("tasks", "task_labels", "entries")]
            return started.postgres.command(" UNION ALL ".join(tables)).encode()


@pytest.mark.parametrize("tool", ["ship", "pack"])
async def test_killed_worker_is_followed_behind_its_stored_steps(tool: str, instances: Any, tmp_path: Path) -> None:
    one, two = instances
    one.start(shops.shop)
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        handle = await Peer(http, one.url).call(tool)
        assert (handle["resultType"], handle.get("statusMessage")) == ("task", "packing" if tool == "pack" else None)
        await stopped(tmp_path)
        one.kill()
        (tmp_path / "go on").touch()
        two.start(shops.shop)
        assert text_of(await Peer(http, two.url).until(handle["taskId"])) == "first step, second step"
    assert effects(tmp_path) == ["began", "first step", "stopped", "began", "stopped", "second step"]


async def test_killed_worker_leaves_a_body_that_runs_once_unknown(
    instances: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRACE_VARIABLE, f"{tmp_path / 'traces'}/")
    one, two = instances
    one.start(shops.shop)
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        first = await Peer(http, one.url).call("pay")
        handle = await Peer(http, one.url).ask(
            "tools/call", name="pay", arguments={}, requestState=first["requestState"]
        )
        task = handle["taskId"]
        await stopped(tmp_path)
        one.kill()
        (tmp_path / "go on").touch()
        two.start(shops.shop)
        ended = await Peer(http, two.url).until(task)
    two.stop()
    assert ended["status"] == "failed"
    assert "unknown" in ended["error"]["message"]
    assert effects(tmp_path) == ["began", "stopped"]
    call = join(read_files(files_of([tmp_path / "traces"])).lines).calls[task.split(".")[0]]
    assert (call.state, failure_of(call)) == (State.FAILED, "lost")
    shown = data_of(call)
    assert ["Body began", "unknown: a leg has no recorded end"] in shown["facts"]
    assert shown["failure"]["why"].startswith("The call is lost: its worker died")


async def test_nothing_of_a_task_is_readable_at_rest(
    kind: str, instances: Any, started: Servers, tmp_path: Path
) -> None:
    one, two = instances
    one.start(shops.shop)
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        peer = Peer(http, one.url)
        task = (await peer.call("ask", secret="argument-4711"))["taskId"]
        await peer.asked(task, "word")
        await peer.answer(task, word="answer-0815")
        assert "answer-0815" in text_of(await peer.until(task))
        one.kill()
        two.start(shops.shop)
        assert "argument-4711" in text_of(await Peer(http, two.url).get(task))
    stored = at_rest(kind, started, tmp_path)
    assert task.split(".")[0].encode() in stored
    for secret in (b"argument-4711", b"answer-0815", b"price of", b"Which word", task.split(".")[1].encode()):
        assert secret not in stored
