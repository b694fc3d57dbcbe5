"""Dependencies of Docket in the parameters of tools: in usual calls, and in the legs of tasks."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from docket import Progress, Retry, TaskKey, TaskLogger, Timeout
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from roundtrip import Context, InvalidSignature, Server, ToolError, after
from roundtrip.install import bind
from roundtrip.ledger import MemoryLedger
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.system import System
from roundtrip.testing import Clock, Era, User
from tests.kit.peer import peers, text_of
from tests.kit.shops import KEY
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio

on_each_class = pytest.mark.usefixtures("each_class")

SEED = '''
from datetime import timedelta
from docket import Timeout

@mcp.tool(task=True)
async def long_running_task(
    data: str,
    timeout: Timeout = Timeout(timedelta(minutes=10))
) -> str:
    """Task with a 10-minute timeout enforced by Docket."""
    ...
'''
"""The example of FastMCP's page on tools, as it is written there."""


async def test_example_of_the_page_on_tools_runs_as_written() -> None:
    mcp = Server[Any]("shop")
    exec(SEED, {"mcp": mcp})
    async with peers(mcp) as (peer,):
        (tool,) = (await peer.ask("tools/list"))["tools"]
        assert list(tool["inputSchema"]["properties"]) == ["data"]
        assert tool["description"] == "Task with a 10-minute timeout enforced by Docket."
        task = await peer.until((await peer.call("long_running_task", data="x", timeout="client's"))["taskId"])
        assert task["status"] == "completed"
        peer.declares = False
        assert (await peer.call("long_running_task", data="x"))["resultType"] == "complete"


def shop(**options: Any) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], **options)

    @server.tool(task=True)
    async def hurry(ctx: Context, limit: Timeout = Timeout(timedelta(seconds=1))) -> str:
        first = await ctx.step("first", lambda: limit.remaining() <= timedelta(seconds=1))
        if ctx.call.leg == 1:
            limit.extend(timedelta(hours=1))
            await anyio.sleep(1.1)
            assert not limit.expired()
        await ctx.ask("sure", "Sure?", bool)
        # The next leg has its own time.
        limit.extend()
        left = limit.remaining()
        return f"{first} {left <= timedelta(seconds=2)}"

    @server.tool(task=True)
    async def thread(ctx: Context, limit: Timeout = Timeout(timedelta(minutes=1))) -> str:
        return str(await ctx.step("step", limit.extend))

    @server.tool()
    async def slow(limit: Timeout = Timeout(timedelta(seconds=0.05))) -> str:
        await anyio.sleep_forever()
        return str(limit)

    return server


async def test_timeout_acts_on_each_leg_and_can_be_extended() -> None:
    async with peers(shop()) as (peer,):
        task = (await peer.call("hurry"))["taskId"]
        await peer.asked(task, "sure")
        # Longer than the timeout: the time of the user does not count.
        await anyio.sleep(1.1)
        await peer.answer(task, sure=True)
        assert text_of(await peer.until(task)) == "True True"


async def test_timeout_is_not_extended_in_a_thread() -> None:
    assert "must be called in the body itself" in (await User(shop(), {}).call("thread")).text


@pytest.mark.parametrize("era", [Era.LIVE, Era.RETRY])
async def test_timeout_ends_a_usual_call(era: Era) -> None:
    with pytest.raises(MCPError) as caught:
        await User(shop(), {}, era=era).call("slow")
    assert caught.value.error.code == -32000
    assert caught.value.error.data["reason"] == "tool_timeout"


async def test_user_has_all_the_time_that_a_timeout_does_not_give() -> None:
    assert (await User(shop(), {"sure": True}, era=Era.LIVE).call("hurry")).text == "True True"


class Trials:
    """Server whose tool fails, and the clock by which it is tried again."""

    def __init__(self, retry: Retry, *, good: int = 3) -> None:
        self.clock = Clock()
        system = System(time=self.clock)
        self.ledger = MemoryLedger(system=system)
        self.server = Server[Any]("shop", keys=[KEY], ledger=self.ledger, system=system)
        self.attempts: list[int] = []
        self.steps = 0

        def count() -> int:
            self.steps += 1
            return self.steps

        @self.server.tool(task=True)
        async def work(ctx: Context, retry: Retry = retry) -> str:
            step = await ctx.step("step", count)
            self.attempts.append(retry.attempt)
            if len(self.attempts) < good:
                raise ConnectionError("the other side is down")
            return f"step {step}, attempt {retry.attempt}"

    async def entry(self, task_id: str) -> CallEntry:
        entry, _ = await self.ledger.tasks.load(task_id.split(".")[0])
        assert entry is not None
        return entry

    async def parked(self, task_id: str, attempts: int) -> float:
        """Return the seconds for which the task waits after so many attempts."""

        async def is_parked() -> bool:
            return len(self.attempts) >= attempts and (await self.entry(task_id)).state is StoredState.WAITING

        await until(is_parked)
        return (await self.entry(task_id)).due - self.clock()


@on_each_class
async def test_failed_attempt_waits_without_a_worker_and_keeps_its_steps() -> None:
    trials = Trials(Retry(attempts=5, delay=timedelta(hours=2)))
    async with peers(trials.server) as (peer,):
        task = (await peer.call("work"))["taskId"]
        for attempt in (1, 2):
            assert await trials.parked(task, attempt) == pytest.approx(7200, abs=1)
            assert (await trials.entry(task)).holder == ""
            trials.clock.advance(7201)
        assert text_of(await peer.until(task)) == "step 1, attempt 3"
    assert trials.attempts == [1, 2, 3]


async def test_last_attempt_ends_the_task_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    trials = Trials(Retry(attempts=2))
    async with peers(trials.server) as (peer,):
        task_id = (await peer.call("work"))["taskId"]
        await trials.parked(task_id, 1)
        # The clock stands still, and the worker's has gone on.
        trials.clock.advance(1)
        task = await peer.until(task_id)
    assert task["status"] == "completed"
    assert task["result"]["isError"]
    assert "the other side is down" in text_of(task)
    assert trials.attempts == [1, 2]
    assert any("next attempt starts in 0 seconds" in record.message for record in caplog.records)


async def test_usual_call_is_not_tried_again() -> None:
    trials = Trials(Retry.forever())
    call = await User(trials.server, {}, era=Era.RETRY).call("work")
    assert call.is_error
    assert trials.attempts == [1]


@pytest.mark.parametrize("kind", ["after", "at", "error", "timeout", "asks"])
async def test_every_failure_of_an_attempt_is_tried_again(kind: str) -> None:
    server = Server[Any]("shop", keys=[KEY])
    begun: list[int] = []

    @server.tool(task=True)
    async def work(
        ctx: Context,
        retry: Retry = Retry(attempts=2, delay=timedelta(days=1) if kind in ("after", "at") else timedelta(0)),
        limit: Timeout = Timeout(timedelta(seconds=1 if kind == "timeout" else WAIT)),
    ) -> str:
        begun.append(retry.attempt)
        sure = await ctx.ask("sure", "Sure?", bool) if kind == "asks" else None
        if retry.attempt == 2:
            return f"{begun} {sure}"
        if kind == "after":
            retry.after(timedelta(0))
        elif kind == "at":
            retry.at(datetime(2020, 1, 1, tzinfo=UTC))
        elif kind == "timeout":
            await anyio.sleep_forever()
        raise ToolError("not now")

    async with peers(server) as (peer,):
        task = (await peer.call("work"))["taskId"]
        if kind == "asks":
            await peer.asked(task, "sure")
            await peer.answer(task, sure=True)
        # The leg before the question is not counted.
        expected = "[1, 1, 2] True" if kind == "asks" else "[1, 2] None"
        assert text_of(await peer.until(task)) == expected


@on_each_class
async def test_call_whose_first_attempt_fails_becomes_a_task() -> None:
    server = Server[Any]("shop", keys=[KEY])

    @server.tool(task=after(20))
    async def work(retry: Retry = Retry(attempts=2)) -> str:
        if retry.attempt == 1:
            raise ConnectionError("the other side is down")
        return f"attempt {retry.attempt}"

    async with peers(server) as (peer,):
        handle = await peer.call("work")
        assert text_of(await peer.until(handle["taskId"])) == "attempt 2"


@on_each_class
async def test_declined_question_is_not_tried_again() -> None:
    server = Server[Any]("shop", keys=[KEY])
    begun: list[int] = []

    @server.tool(task=True)
    async def work(ctx: Context, retry: Retry = Retry.forever()) -> str:
        begun.append(retry.attempt)
        return str(await ctx.ask("sure", "Sure?", bool))

    async with peers(server) as (peer,):
        task = (await peer.call("work"))["taskId"]
        await peer.asked(task, "sure")
        await peer.ask("tasks/update", taskId=task, inputResponses={"sure": {"action": "decline"}})
        assert (await peer.until(task))["result"]["isError"]
    assert begun == [1, 1]


def counting() -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY])

    @server.tool(task=True)
    async def count(silent: bool, ctx: Context, progress: Progress = Progress(), key: str = TaskKey()) -> str:
        assert (progress.current, progress.total, progress.message) == (0, 100, None)
        await progress.set_message("counting")
        if not silent:
            await progress.set_total(3)
            await progress.increment()
            await progress.increment(2)
        assert key == ctx.call.id
        return f"{progress.current} of {progress.total}, {progress.message}"

    return server


@on_each_class
@pytest.mark.parametrize(("silent", "message"), [(True, "counting"), (False, "counting (3 of 3)")])
async def test_progress_becomes_the_status_message(silent: bool, message: str) -> None:
    async with peers(counting()) as (peer,):
        task = await peer.until((await peer.call("count", silent=silent))["taskId"])
    assert task["statusMessage"] == message


@pytest.mark.parametrize("era", [Era.LIVE, Era.RETRY])
async def test_progress_of_a_usual_call_goes_to_its_client(era: Era) -> None:
    seen: list[Any] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    mode = "2026-07-28" if era is Era.RETRY else "legacy"
    async with Client(counting(), mode=mode) as client:
        result = await client.call_tool("count", {"silent": False}, progress_callback=report)
    assert result.content[0].text == "3 of 3, counting"  # type: ignore[union-attr]
    assert seen == [(1, 3, "counting"), (3, 3, "counting")]


async def test_invalid_numbers_of_progress_are_errors() -> None:
    server = Server[Any]("shop", keys=[KEY])

    @server.tool()
    async def wrong(total: bool, progress: Progress = Progress()) -> str:
        await (progress.set_total(0) if total else progress.increment(0))
        return ""

    for total in (True, False):
        assert "must be at least 1" in (await User(server, {}).call("wrong", total=total)).text


async def test_task_logger_names_the_tool_and_the_call(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = Server[Any]("shop", keys=[KEY])

    @server.tool()
    async def work(ctx: Context, log: "logging.LoggerAdapter[logging.Logger]" = TaskLogger()) -> str:
        log.info("working")
        return ctx.call.id

    call = (await User(server, {}).call("work")).text
    (record,) = [record for record in caplog.records if record.message == "working"]
    assert record.name == "docket.task.work"
    assert vars(record)["docket.key"] == call


async def once_and_retry(retry: Retry = Retry(attempts=2)) -> None: ...
async def two_timeouts(one: Timeout = Timeout(timedelta(1)), two: Timeout = Timeout(timedelta(1))) -> None: ...
def plain(limit: Timeout = Timeout(timedelta(1))) -> None: ...
def plain_progress(progress: Progress = Progress()) -> None: ...


@pytest.mark.parametrize(
    ("body", "options", "why"),
    [
        (once_and_retry, {"task": "required", "exactly_once": True}, "each attempt runs the body again"),
        (once_and_retry, {}, "only tasks are retried"),
        (two_timeouts, {"task": True}, "must have only one Timeout, got 'one' and 'two'"),
        (plain, {"task": True}, "has Timeout, which needs a coroutine function"),
        (plain_progress, {}, "has _?Progress, which needs a coroutine function"),
    ],
)
def test_dependency_that_cannot_work_is_rejected(body: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSignature, match=why):
        Server[Any]("shop").add_tool(body, name="work", **options)


async def test_prompt_cannot_have_a_dependency_of_docket() -> None:
    async def prompt(limit: Timeout = Timeout(timedelta(1))) -> str:
        return ""

    with pytest.raises(InvalidSignature, match="only as the default of the tool's own parameter"):
        Server[Any]("shop").prompt()(prompt)


def test_bound_tool_is_checked_before_there_is_a_server() -> None:
    async def fetch(retry: Retry = Retry(attempts=3)) -> int:
        return retry.attempt

    with pytest.raises(InvalidSignature, match="only tasks are retried"):
        bind(fetch)
