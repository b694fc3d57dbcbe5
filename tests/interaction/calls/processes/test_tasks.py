"""`roundtrip call` follows calls that become tasks."""

import json
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

if sys.platform == "win32":
    pytest.skip("the processes are forked", allow_module_level=True)

from typing import Annotated, Any

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import MemoryLedger, SqliteLedger
from tests.interaction.calls.sessions import PATIENCE, Ended, command, script, served

ANSWERS = {"confirm:order": {}, "how_many": {"value": 3}, "gift": {"value": True}}


def how_many() -> Elicit[int]:
    return Elicit("How many?", int)


def shop() -> Server[Any]:
    server = Server[Any]("shop", ledger=MemoryLedger())

    @server.tool(task=True, confirm="Order {title}?")
    async def order(title: str, copies: Annotated[int, Resolve(how_many)], ctx: Context) -> str:
        """Order a book."""
        await ctx.report_progress(1, 3, "looking for it")
        gift = await ctx.ask("gift", "A gift?", bool)
        return f"{copies} of {title}, {gift}"

    @server.tool(task="required")
    async def wait(ctx: Context) -> str:
        """Wait for a payment."""
        return await ctx.wait_for("payment")

    @server.tool(task=True)
    async def fail() -> str:
        """Fail."""
        raise ValueError("no such book")

    return server


@pytest.fixture(scope="module")
def shop_url() -> Generator[str]:
    with served(shop) as url:
        yield url


def task_of(ended: Ended) -> str:
    return ended.told.splitlines()[0].split()[1].rstrip(";")


def call(server: str, *arguments: str, answers: object = ANSWERS) -> Ended:
    return script(server, *arguments, "--answers", "-", stdin=json.dumps(answers))


@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_call_follows_its_task(kind: str, shop_url: str) -> None:
    ended = call(shop_url if kind == "http" else command(shop), "order", "title=Ulysses")
    assert (ended.code, ended.out) == (0, "3 of Ulysses, True\n")
    lines = ended.told.splitlines()
    assert lines[0].startswith("task ")
    assert lines[0].endswith("; use --task to continue it later")
    assert "... input required: looking for it (1 of 3)" in lines
    assert lines[-1] == "... completed: looking for it (1 of 3)"


def test_invalid_answer_is_asked_again_by_its_name(shop_url: str) -> None:
    again = [{"name": "gift", "answer": {"value": "perhaps"}}, {"name": "gift", "answer": {"value": False}}]
    others = [{"name": key, "answer": ANSWERS[key]} for key in ("confirm:order", "how_many")]
    ended = call(shop_url, "order", "title=Ulysses", answers=[*others, *again])
    assert "the question 'gift' does not fit: field 'value': it must be yes or no" in ended.told


def test_call_without_tasks_is_a_usual_call(shop_url: str) -> None:
    ended = call(shop_url, "order", "title=Ulysses", "--no-tasks")
    assert (ended.code, ended.out, ended.told) == (0, "3 of Ulysses, True\n", "... 1 of 3: looking for it\n" * 2)
    assert "[-32021]; remove --no-tasks" in call(shop_url, "wait", "--no-tasks").told


def test_task_is_left_picked_up_and_cancelled(shop_url: str) -> None:
    unanswered = {key: answer for key, answer in ANSWERS.items() if key != "gift"}
    one, another = [call(shop_url, "order", "title=Ulysses", answers=unanswered) for _ in range(2)]
    assert one.code == another.code == 2
    taken_up = call(shop_url, "--task", task_of(one))
    assert (taken_up.code, taken_up.out) == (0, "3 of Ulysses, True\n")
    cancelled = call(shop_url, "--task", task_of(another), "--cancel")
    assert cancelled.code == 0
    assert cancelled.told.splitlines()[-1] == "roundtrip call: the task was cancelled"


def test_failed_tool_of_a_task_and_unknown_tasks_are_errors(shop_url: str) -> None:
    unknown = call(shop_url, "--task", "nothing.like-it")
    assert (unknown.code, "Task not found" in unknown.told) == (4, True)
    ended = call(shop_url, "fail")
    assert (ended.code, ended.out) == (1, "Error executing tool fail: no such book\n")


def test_call_goes_on_when_its_server_comes_back(tmp_path: Path) -> None:
    started, may_end = threading.Event(), threading.Event()

    def durable() -> Server[Any]:
        server = Server[Any]("shop", keys=[b"k" * 32], ledger=SqliteLedger(tmp_path / "tasks.db"))

        async def slow() -> int:
            started.set()
            await anyio.to_thread.run_sync(may_end.wait, PATIENCE, abandon_on_cancel=True)
            return 5

        @server.tool(task=True)
        async def work(ctx: Context) -> str:
            gift = await ctx.ask("gift", "A gift?", bool)
            return f"{await ctx.step('slow', slow)}, {gift}"

        return server

    ended: list[Ended] = []
    with served(durable) as url:
        caller = threading.Thread(target=lambda: ended.append(call(url, "work")))
        caller.start()
        assert started.wait(PATIENCE)
    may_end.set()
    with served(durable, port=urlsplit(url).port or 0):
        caller.join(PATIENCE)
    assert [(one.code, one.out) for one in ended] == [(0, "5, True\n")]
