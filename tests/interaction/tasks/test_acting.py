"""Operators act on tasks of every store: what the client sees then, and the line of the operator log."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import INTERNAL_ERROR

from roundtrip import Context, ElicitUrl, Sample, Server
from roundtrip.ledger import MemoryLedger
from roundtrip.stored.content import CallNotChanged
from roundtrip.stored.operations import AnswerUnfit
from roundtrip.trace.writing.operator_log import OperatorLogUnwritable
from tests.interaction.tasks.operators import asking, logged, operator_of
from tests.kit.peer import peers, text_of
from tests.kit.shops import KEY
from tests.kit.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "operators.jsonl"


def shop(ledger: Any, name: str = "shop", **options: Any) -> Server[Any]:
    server = Server[Any](name, keys=[KEY], ledger=ledger, **options)

    @server.tool(task=True)
    async def order(ctx: Context) -> str:
        return f"ordered {await ctx.ask('size', 'How large?', int)}"

    @server.tool(task=True)
    async def hold(ctx: Context) -> str:
        await ctx.step("began", lambda: 1)
        await anyio.sleep(1000)
        return "held"

    @server.tool(task="required", exactly_once=True)
    async def pay(ctx: Context) -> str:
        return f"paid {await ctx.ask('sum', 'How much?', int)}"

    @server.tool(task=True)
    async def visit(ctx: Context) -> str:
        await ctx.ask("page", ElicitUrl("Go there", "https://shop.example/pay"))
        return "visited"

    @server.tool(task=True)
    async def think(ctx: Context) -> str:
        await ctx.ask("idea", Sample("Think", max_tokens=10))
        return "thought"

    return server


async def test_cancelled_task_is_cancelled_for_its_client(ledger: Any, log: Path) -> None:
    server = shop(ledger)
    async with peers(server) as (peer,):
        task, call = await asking(peer)
        await operator_of(server, log).act(call, "cancel")
        assert (await peer.get(task))["status"] == "cancelled"
        with pytest.raises(CallNotChanged, match="already ended; its state is cancelled"):
            await operator_of(server, log, by="bob").act(call, "cancel")
    assert [(line.by, line.action, line.tool, line.outcome, line.why) for line in logged(log)] == [
        ("ana", "cancel", "order", "done", ""),
        ("bob", "cancel", "order", "rejected", "the call has already ended; its state is cancelled"),
    ]
    assert {line.call for line in logged(log)} == {call}


async def test_expired_task_is_unknown_to_its_client(log: Path) -> None:
    server = shop(None)
    async with peers(server) as (peer,):
        task, call = await asking(peer)
        await operator_of(server, log).act(call, "expire")
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            sent = await peer.send(method, taskId=task, inputResponses={})
            assert sent["error"]["message"] == "Task not found"
        with pytest.raises(CallNotChanged, match="there is no such task"):
            await operator_of(server, log).act(call, "expire")
    assert [(line.outcome, line.tool) for line in logged(log)] == [("done", "order"), ("rejected", None)]


@pytest.mark.parametrize("action", ["cancel", "expire"])
async def test_running_body_is_stopped(log: Path, action: Any) -> None:
    server = shop(None)
    service = server.internals.storage.tasks
    assert service is not None

    def is_busy() -> bool:
        return any(engine.is_busy for engine in service._engines.values())  # pyright: ignore[reportPrivateUsage]

    async with peers(server) as (peer,):
        task = (await peer.call("hold"))["taskId"]
        call = task.split(".")[0]
        await until(is_busy)
        await operator_of(server, log).act(call, action)
        await until(lambda: not is_busy())
    assert [line.outcome for line in logged(log)] == ["done"]


async def test_expired_task_that_runs_once_is_found_by_a_repeated_request(log: Path) -> None:
    server = shop(None)
    async with peers(server) as (peer,):
        first = await peer.call("pay")
        sent: dict[str, Any] = {"name": "pay", "arguments": {}, "requestState": first["requestState"]}
        task = (await peer.ask("tools/call", **sent))["taskId"]
        await peer.asked(task, "sum")
        await operator_of(server, log).act(task.split(".")[0], "expire")
        shown = await peer.get(task)
        assert shown["status"] == "failed"
        assert shown["error"] == {
            "code": INTERNAL_ERROR,
            "message": "This call has ended: an operator of the server expired it.",
        }
        again = await peer.ask("tools/call", **sent)
        assert (again["taskId"], again["status"]) == (task, "failed")


async def test_answer_of_a_test_user_continues_the_task(log: Path) -> None:
    server = shop(None)
    async with peers(server) as (peer,):
        task, call = await asking(peer)
        operator = operator_of(server, log)
        for content in ({"value": "large"}, {"value": 3, "other": 1}, {}, 3.5, None):
            with pytest.raises(AnswerUnfit):
                await operator.answer(call, "size", {"action": "accept", "content": content})
        assert set(await peer.asked(task, "size")) == {"size"}
        await operator.answer(call, "size", {"action": "accept", "content": {"value": 3}})
        assert text_of(await peer.until(task)) == "ordered 3"
        with pytest.raises(CallNotChanged, match="the call has already ended; its state is completed"):
            await operator_of(server).answer(call, "size", {"action": "accept", "content": {"value": 4}})
    lines = logged(log)
    assert {line.why for line in lines[:-1]} == {"the answer does not fit its question"}
    assert (lines[-1].outcome, lines[-1].why) == ("done", "size")
    assert "large" not in str(lines)


@pytest.mark.parametrize(
    ("tool", "key", "said"),
    [
        ("visit", "page", "sends the user to a page"),
        ("think", "idea", "^this question is answered by the client's software, not by a user; wait for the client$"),
        ("order", "color", '^the call has no such open question; its open questions: "size"$'),
    ],
)
async def test_other_questions_are_not_answered(tool: str, key: str, said: str, log: Path) -> None:
    server = shop(None)
    async with peers(server) as (peer,):
        _, call = await asking(peer, tool, "size" if tool == "order" else key)
        with pytest.raises(CallNotChanged, match=said):
            await operator_of(server, log).answer(call, key, {"action": "accept", "content": {"value": 1}})
    (line,) = logged(log)
    assert (line.action, line.outcome) == ("answer", "rejected")


async def test_possible_actions_are_those_that_succeed() -> None:
    server = shop(None)
    assert server.internals.storage.tasks is not None
    book = server.internals.storage.tasks.book
    async with peers(server) as (peer,):
        task, call = await asking(peer)
        operations = operator_of(server).operations

        async def possible() -> list[str]:
            view = await book.view(call)
            assert view is not None
            return [*operations.possible(view.entry, view.content, book.clock())]

        assert await possible() == ["cancel", "expire", "answer"]
        await peer.answer(task, size=1)
        await peer.until(task)
        assert await possible() == []


async def test_calls_of_another_service_are_not_touched(log: Path) -> None:
    ledger = MemoryLedger()
    server, other = shop(ledger), shop(ledger, "wiki", run_tasks=False)
    async with peers(server, other) as (peer, _):
        task, call = await asking(peer)
        operator = operator_of(other, log)
        for action in ("cancel", "retry", "expire"):
            with pytest.raises(CallNotChanged, match="another service"):
                await operator.act(call, action)
        with pytest.raises(CallNotChanged, match="another service"):
            await operator.answer(call, "size", {"action": "decline"})
        assert (await peer.get(task))["status"] == "input_required"
    assert [line.outcome for line in logged(log)] == ["rejected"] * 4


async def test_nothing_is_done_without_a_writable_log(tmp_path: Path) -> None:
    server = shop(None)
    (tmp_path / "operators.jsonl").mkdir()
    async with peers(server) as (peer,):
        task, call = await asking(peer)
        operator = operator_of(server, tmp_path / "operators.jsonl")
        for action in ("cancel", "retry", "expire", "remind"):
            with pytest.raises(OperatorLogUnwritable, match="nothing was done"):
                await operator.act(call, action)
        with pytest.raises(OperatorLogUnwritable, match="nothing was done"):
            await operator.answer(call, "size", {"action": "decline"})
        assert (await peer.get(task))["status"] == "input_required"


async def test_interrupted_action_is_in_the_log(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = shop(None)
    operator = operator_of(server, log)

    async def never(call_id: str) -> None:
        del call_id
        await anyio.sleep_forever()

    monkeypatch.setattr(operator.operations, "cancel", never)
    async with anyio.create_task_group() as group:
        group.start_soon(operator.act, "call-1", "cancel")
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    (line,) = logged(log)
    assert (line.outcome, line.why.partition(";")[0]) == (
        "rejected",
        "the action was interrupted, or the store could not be used",
    )
