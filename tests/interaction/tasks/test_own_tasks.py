"""A process with `run_tasks="own"` leaves the tasks of others in its store alone, as `roundtrip call` and `dev` do."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip import Context, Server
from roundtrip.cli import main
from roundtrip.ledger import SqliteLedger
from roundtrip.switches import RUN_TASKS_VARIABLE
from tests.interaction.tasks.looks import Looks
from tests.kit.peer import WAIT_SECONDS, Peer, peers, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]
KEY = "7f" * 32


def shop(folder: Path, run_tasks: Any, ran: list[str]) -> Server[Any]:
    ledger = SqliteLedger(folder / "tasks.db", durable=False)
    server = Server[Any]("shop", keys=[KEY], ledger=ledger, run_tasks=run_tasks)

    @server.tool(task="required")
    async def ship(order: str) -> str:
        ran.append(order)
        return f"shipped {order}"

    @server.tool(task="required")
    async def wrap(order: str, ctx: Context) -> str:
        ran.append(order)
        return f"{order} in {await ctx.ask('paper', 'Which paper?', str)}"

    return server


async def begun(peer: Peer, tool: str, order: str) -> str:
    return (await peer.call(tool, order=order))["taskId"]


async def test_tasks_of_others_are_left_alone_until_a_client_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch)
    theirs, ours = list[str](), list[str]()
    async with peers(shop(tmp_path, False, theirs), shop(tmp_path, "own", ours)) as (fleet, command):
        waiting = await begun(fleet, "ship", "theirs")
        assert text_of(await command.until(await begun(command, "ship", "ours"))) == "shipped ours"
        asking = await begun(command, "wrap", "a book")
        await command.asked(asking, "paper")
        # Another process takes the answer, and does not run the task.
        await fleet.answer(asking, paper="red")
        assert text_of(await command.until(asking)) == "a book in red"
        await looks.more(3)
        assert theirs == []
        assert ours == ["ours", "a book", "a book"]
        with anyio.fail_after(WAIT_SECONDS):
            assert text_of(await command.until(waiting)) == "shipped theirs"
    assert theirs == []


async def test_call_is_named_by_those_alone_who_may_ask_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    ours = list[str]()
    async with peers(shop(tmp_path, False, []), shop(tmp_path, "own", ours)) as (fleet, command):
        waiting = await begun(fleet, "ship", "theirs")
        call_id = waiting.partition(".")[0]
        for other in (f"{call_id}.{'x' * 22}", call_id):
            with pytest.raises(AssertionError):
                await command.get(other)
        await looks.more(3)
        assert ours == []
        # A worker of the same module runs all tasks.
        server = shop(tmp_path, "own", ours)
        tasks = server.internals.storage.tasks
        assert tasks is not None
        async with server.internals.own_lifespan(), tasks.working(10):
            assert text_of(await fleet.until(waiting)) == "shipped theirs"
    assert ours == ["theirs"]


def test_choice_that_is_none_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="run_tasks= must be True or False, got 'mine'; 'own' runs"):
        shop(tmp_path, "mine", [])
    monkeypatch.setenv(RUN_TASKS_VARIABLE, "mine")
    with pytest.raises(ValueError, match="ROUNDTRIP_RUN_TASKS must be 1 or 0, got 'mine'; 'own' runs"):
        shop(tmp_path, None, [])


SERVER = """
from roundtrip import Server
from roundtrip.ledger import SqliteLedger

server = Server("shop", keys=["{key}"], ledger=SqliteLedger("{folder}/tasks.db"))


@server.tool(task="required")
async def ship(order: str) -> str:
    with open("{folder}/ran", "a") as file:
        file.write(order + "\\n")
    return "shipped " + order
"""


def test_call_runs_the_tasks_of_its_own_calls_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(RUN_TASKS_VARIABLE, raising=False)
    file = tmp_path / "own_tasks_shop.py"
    file.write_text(SERVER.format(key=KEY, folder=tmp_path))

    async def store() -> str:
        async with peers(shop(tmp_path, False, [])) as (fleet,):
            return await begun(fleet, "ship", "theirs")

    task = anyio.run(store)
    assert main(["call", str(file), "ship", "order=ours"]) == 0
    assert capsys.readouterr().out == "shipped ours\n"
    assert (tmp_path / "ran").read_text() == "ours\n"
    assert RUN_TASKS_VARIABLE not in os.environ
    # Who names a task goes on with it.
    assert main(["call", str(file), "--task", task]) == 0
    assert capsys.readouterr().out == "shipped theirs\n"
