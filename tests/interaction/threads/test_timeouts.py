"""A tool's own work has a time limit, which does not count the time of users and pages."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult

from roundtrip import Context, Elicit, ElicitUrl, Event, Resolve, Server
from roundtrip.testing import Era, Steps
from roundtrip.threads.slots import SHARED
from tests.kit.held_threads import Held
from tests.kit.players import Person, connect, text_of
from tests.kit.time_limits import LIMIT, TimeLimits, hang
from tests.kit.visitors import Visitor, connect_user
from tests.kit.waiting import WAIT, until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("limits")]

LEFT = Elicit("Left?", int)
ONE = {"value": 1}


class Slow(Person):
    """User who answers when the time of the tools would be over."""

    def __init__(self, limits: TimeLimits, *replies: Any) -> None:
        super().__init__(*replies)
        self._limits = limits

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self._limits.expire()
        return await super().__call__(context, params)


@asynccontextmanager
async def few_threads(number: int) -> AsyncGenerator[anyio.CapacityLimiter]:
    """The event loop has so many threads; at the end none of them is held any more."""
    limiter = SHARED.slots().limiter
    limiter.total_tokens = number
    yield limiter
    await until(lambda: not limiter.borrowed_tokens)


async def failure_of(server: Server[Any], era: Era, tool: str, person: Person | None = None) -> MCPError:
    with anyio.fail_after(WAIT):
        async with connect(server, era, person) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool(tool)
    return caught.value


def assert_timed_out(error: MCPError, tool: str) -> None:
    assert error.code == -32000
    assert error.message == f"Tool {tool!r} timed out after {LIMIT:g}s"
    assert error.data == {"reason": "tool_timeout", "tool": tool, "timeout": LIMIT}


# The error, the log and the trace.


async def test_slow_tool_is_answered_with_its_name_and_limit(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    trace = Steps()
    server = Server[Any]("slow", trace=trace)
    server.tool(name="fetch", timeout=LIMIT)(hang)
    assert_timed_out(await failure_of(server, era, "fetch"), "fetch")
    assert trace.transitions[-1].event is Event.FAIL
    assert trace.transitions[-1].detail == {"error": "timed out"}
    (record,) = [record for record in caplog.records if record.name == "roundtrip"]
    told = f"tool 'fetch' timed out after {LIMIT:g}s; with task=True, the call runs in the background"
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(told)


async def test_slow_plain_tool_is_answered_while_its_thread_continues(
    limits: TimeLimits, caplog: pytest.LogCaptureFixture, held: Held
) -> None:
    server = Server[Any]("slow")
    server.tool(name="fetch", timeout=LIMIT)(held.__call__)
    async with few_threads(40) as limiter:
        async with limits.expiring(lambda: held.started):
            assert_timed_out(await failure_of(server, Era.RETRY, "fetch"), "fetch")
        assert (held.started, held.ended, limiter.borrowed_tokens) == (1, 0, 1)
        held.release.set()
    assert held.ended == 1
    (record,) = [record for record in caplog.records if record.name == "roundtrip"]
    told = f"tool 'fetch' timed out after {LIMIT:g}s; number of threads that its functions still occupy: 1"
    assert record.getMessage().startswith(told)


def test_a_time_that_cannot_be_is_rejected_at_registration() -> None:
    server = Server[Any]("slow")
    for timeout in (0, -1, float("inf"), float("nan")):
        with pytest.raises(
            ValueError, match=rf"tool 'hang': timeout= must be a positive, finite number of seconds, got {timeout}"
        ):
            server.tool(timeout=timeout)(hang)


# People take their time.


async def in_body(ctx: Context[Any, Any]) -> int:
    return await ctx.ask("left", LEFT)


def in_thread(ctx: Context[Any, Any]) -> int:
    return ctx.blocking.ask("left", LEFT)


async def left() -> Elicit[int]:
    return LEFT


async def in_resolver(value: Annotated[int, Resolve(left)]) -> int:
    return value


@pytest.mark.parametrize(
    ("era", "body"),
    [(Era.RETRY, in_body), (Era.LIVE, in_body), (Era.LIVE, in_thread), (Era.LIVE, in_resolver)],
)
async def test_a_person_may_take_longer_than_the_tool(era: Era, body: Callable[..., Any], limits: TimeLimits) -> None:
    server = Server[Any]("patient")
    server.tool(name="ask", timeout=LIMIT)(body)
    with anyio.fail_after(WAIT):
        async with connect(server, era, Slow(limits, ONE)) as client:
            assert text_of(await client.call_tool("ask")) == "1"


@pytest.mark.parametrize(
    ("era", "place"),
    [(Era.RETRY, "body"), (Era.LIVE, "body"), (Era.LIVE, "thread"), (Era.LIVE, "resolver")],
)
async def test_tool_must_finish_in_time_after_the_answer(era: Era, place: str, held: Held, limits: TimeLimits) -> None:
    server = Server[Any]("slow")

    async def follow(left: Annotated[int, Resolve(left)]) -> int:
        await hang()
        return left

    async def waits(ctx: Context[Any, Any]) -> None:
        await ctx.ask("left", LEFT)
        await hang()

    def blocks(ctx: Context[Any, Any]) -> str:
        ctx.blocking.ask("left", LEFT)
        return held()

    async def resolved(value: Annotated[int, Resolve(follow)]) -> int:
        return value

    body: Callable[..., Any] = {"body": waits, "thread": blocks, "resolver": resolved}[place]
    server.tool(name="ask", timeout=LIMIT)(body)
    person = Person(ONE)
    async with limits.expiring(lambda: held.started):
        assert_timed_out(await failure_of(server, era, "ask", person), "ask")
    assert len(person.asked) == 1


async def test_live_answer_restarts_the_tool_clock(limits: TimeLimits) -> None:
    server = Server[Any]("steady")

    @server.tool(timeout=LIMIT)
    async def ask(ctx: Context[Any, Any]) -> str:
        for number in range(3):
            await ctx.ask(f"left-{number}", LEFT)
        return "done"

    with anyio.fail_after(WAIT):
        async with connect(server, Era.LIVE, Slow(limits, ONE, ONE, ONE)) as client:
            assert text_of(await client.call_tool("ask")) == "done"
    assert limits.seconds == [LIMIT] * 4


async def test_other_tasks_have_time_while_one_asks(limits: TimeLimits) -> None:
    server = Server[Any]("both")
    asked, worked = anyio.Event(), anyio.Event()

    class Waiting(Person):
        async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            asked.set()
            await worked.wait()
            return await super().__call__(context, params)

    @server.tool(timeout=LIMIT)
    async def ask(ctx: Context[Any, Any]) -> None:
        async def work() -> None:
            await asked.wait()
            # Past the tool's time, but not past the person's.
            limits.expire()
            await anyio.lowlevel.checkpoint()
            worked.set()

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await ctx.ask("left", LEFT)

    with anyio.fail_after(WAIT):
        async with connect(server, Era.LIVE, Waiting(ONE)) as client:
            assert not (await client.call_tool("ask")).is_error
    assert worked.is_set()


async def test_abandoned_question_restarts_the_clock() -> None:
    server = Server[Any]("slow")
    asking = anyio.CancelScope()

    class Silent(Person):
        async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            asking.cancel()
            await anyio.sleep_forever()
            raise AssertionError

    @server.tool(timeout=LIMIT)
    async def ask(ctx: Context[Any, Any]) -> None:
        with asking:
            await ctx.ask("left", LEFT)
        await hang()

    assert_timed_out(await failure_of(server, Era.LIVE, "ask", Silent()), "ask")


# Pages.


async def test_waiting_for_a_page_counts_for_nothing(limits: TimeLimits) -> None:
    starts: list[int] = []

    async def done() -> str | None:
        starts.append(len(limits.seconds))
        return "ada" if len(starts) == 2 else None

    server = Server[Any]("shop")

    @server.tool(timeout=LIMIT)
    async def export(ctx: Context[Any, Any]) -> str:
        page = ElicitUrl[str]("Log in.", "https://bookshop.example/login", done=done, wait=WAIT)
        return await ctx.ask("login", page)

    with anyio.fail_after(WAIT):
        async with connect_user(server, Era.LIVE, Visitor()) as client:
            assert text_of(await client.call_tool("export")) == "ada"
    # Each look has the whole time.
    assert len(set(starts)) == 2


@pytest.mark.parametrize(("era", "plain"), [(Era.RETRY, True), (Era.LIVE, False)])
async def test_looking_whether_a_page_is_done_is_work(era: Era, plain: bool, held: Held, limits: TimeLimits) -> None:
    server = Server[Any]("shop")

    @server.tool(timeout=LIMIT)
    async def export(ctx: Context[Any, Any]) -> None:
        done: Any = held.__call__ if plain else lambda: hang()
        await ctx.ask("login", ElicitUrl[Any]("Log in.", "https://bookshop.example/login", done=done, wait=WAIT))

    async with few_threads(40):
        with anyio.fail_after(WAIT):
            async with connect_user(server, era, Visitor()) as client, limits.expiring(lambda: held.started):
                with pytest.raises(MCPError) as caught:
                    await client.call_tool("export")
        held.release.set()
    assert_timed_out(caught.value, "export")


# Whatever takes the time, and whatever becomes of it.


async def hanging() -> str:
    await hang()
    return "never"


async def swallows() -> str:
    with suppress(BaseException):
        await hang()
    return "never mind"


async def crashes() -> str:
    try:
        await hang()
    finally:
        raise ValueError("cleaning up failed")


async def has_children() -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        group.start_soon(crashes)
    return "never"


async def fails(error: Exception) -> None:
    raise error


async def has_native_children() -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(crashes())
        await anyio.sleep_forever()
    return "never"


async def lost_native_children() -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(ValueError("child")))
    except* ValueError:
        pass
    return await hanging()


@pytest.mark.parametrize(
    ("body", "era", "asking"),
    [
        (swallows, Era.RETRY, True),
        (swallows, Era.LIVE, False),
        (crashes, Era.LIVE, True),
        (crashes, Era.RETRY, False),
        (has_children, Era.RETRY, True),
        (has_native_children, Era.RETRY, True),
        (has_native_children, Era.LIVE, False),
        (lost_native_children, Era.LIVE, True),
    ],
)
async def test_stopped_body_has_timed_out_for_any_reaction(era: Era, body: Callable[..., Any], asking: bool) -> None:
    trace = Steps()
    server = Server[Any]("slow", trace=trace)

    async def with_context(ctx: Context[Any, Any]) -> str:
        return await body()

    server.tool(name="fetch", timeout=LIMIT)(with_context if asking else body)
    server.tool(name="greet")(lambda: "hello")
    with anyio.fail_after(WAIT):
        async with connect(server, era) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("fetch")
            # The connection lives on.
            assert text_of(await client.call_tool("greet")) == "hello"
    assert_timed_out(caught.value, "fetch")
    assert [step.detail for step in trace.transitions if step.event is Event.FAIL] == [{"error": "timed out"}]


async def test_exception_of_a_stopped_body_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = Server[Any]("slow")
    server.tool(timeout=LIMIT)(crashes)
    await failure_of(server, Era.RETRY, "crashes")
    (record,) = [record for record in caplog.records if record.name == "roundtrip"]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "cleaning up failed"


# Tools that call tools.


@pytest.mark.parametrize(("inner", "outer"), [(LIMIT, WAIT), (WAIT, LIMIT)], ids=["inner", "outer"])
async def test_nested_tools_have_a_time_limit_each(inner: float, outer: float) -> None:
    server = Server[Any]("nested")

    @server.tool(name="inner", timeout=inner)
    async def hangs() -> None:
        await hang(LIMIT)

    @server.tool(name="outer", timeout=outer)
    async def nests() -> str:
        try:
            await server.call_tool("inner", {})
        except MCPError as error:
            return error.message
        return "never"

    if outer == LIMIT:
        assert_timed_out(await failure_of(server, Era.RETRY, "outer"), "outer")
        return
    async with connect(server, Era.RETRY) as client:
        assert text_of(await client.call_tool("outer")) == f"Tool 'inner' timed out after {LIMIT:g}s"


@pytest.mark.parametrize("inner", [None, LIMIT])
async def test_question_of_an_inner_tool_stops_the_outer_clock(inner: float | None, limits: TimeLimits) -> None:
    server = Server[Any]("nested")
    server.tool(name="inner", timeout=inner)(in_body)

    @server.tool(timeout=LIMIT)
    async def outer(ctx: Context[Any, Any]) -> str:
        return text_of(await server.call_tool("inner", {}, ctx))

    with anyio.fail_after(WAIT):
        async with connect(server, Era.LIVE, Slow(limits, ONE)) as client:
            assert text_of(await client.call_tool("outer")) == "1"


# Threads.


def slots_of(held: Held) -> Server[Any]:
    """Make plain tools with and without a timeout, and one that needs no thread."""
    server = Server[Any]("threads")
    server.tool(name="timed", timeout=LIMIT)(held.__call__)
    server.tool(name="untimed")(held.__call__)

    @server.tool()
    async def loop() -> str:
        return "hello"

    async def resolved(value: Annotated[str, Resolve(held.__call__, name="value")]) -> str:
        return value

    server.tool(name="resolved")(resolved)
    return server


def assert_refused(error: MCPError, tool: str, threads: int) -> None:
    assert error.code == -32000
    assert error.data == {"reason": "threads_exhausted", "tool": tool}
    assert error.message.startswith(
        f"Tool {tool!r} cannot run: no thread is free: functions whose calls timed out still run in all {threads}"
    )


async def test_sixty_slow_calls_use_and_return_forty_threads(held: Held, limits: TimeLimits) -> None:
    server = slots_of(held)
    errors: list[MCPError] = []
    limiter = SHARED.slots().limiter

    @server.tool()
    def other() -> str:
        return "served"

    assert limiter.total_tokens == 60
    with anyio.fail_after(WAIT):
        async with connect(server, Era.RETRY) as client:

            async def call() -> None:
                with pytest.raises(MCPError) as caught:
                    await client.call_tool("timed")
                errors.append(caught.value)

            async with limits.expiring(lambda: held.started == 40), anyio.create_task_group() as group:
                for _ in range(60):
                    group.start_soon(call)
            assert len(errors) == 60
            assert {error.data["reason"] for error in errors} <= {"tool_timeout", "threads_exhausted"}
            assert (held.started, held.ended, limiter.borrowed_tokens) == (40, 0, 40)
            with pytest.raises(MCPError) as caught:
                await client.call_tool("timed")
            assert_refused(caught.value, "timed", 40)
            assert text_of(await client.call_tool("other")) == "served"
            assert text_of(await client.call_tool("loop")) == "hello"
            held.release.set()
            await until(lambda: not limiter.borrowed_tokens)
            assert held.ended == 40
            for tool in ("timed", "untimed", "resolved"):
                assert text_of(await client.call_tool(tool)) == "done"
    assert limiter.borrowed_tokens == 0


async def test_call_is_rejected_once_all_threads_are_lost(held: Held, limits: TimeLimits) -> None:
    server = slots_of(held)
    errors: dict[str, MCPError] = {}
    async with few_threads(1):
        with anyio.fail_after(WAIT):
            async with connect(server, Era.RETRY) as client, anyio.create_task_group() as group:

                async def call(tool: str) -> None:
                    with pytest.raises(MCPError) as caught:
                        await client.call_tool(tool)
                    errors[tool] = caught.value

                group.start_soon(call, "timed")
                await until(lambda: held.started)
                group.start_soon(call, "untimed")
                limits.expire()
        assert_timed_out(errors["timed"], "timed")
        assert_refused(errors["untimed"], "untimed", 1)
        assert held.started == 1
        held.release.set()


async def test_threads_that_are_only_busy_are_waited_for(held: Held, limits: TimeLimits) -> None:
    server = slots_of(held)

    @server.tool(timeout=WAIT)
    def plain() -> str:
        return "ran"

    results: list[str] = []
    async with few_threads(1) as limiter:
        with anyio.fail_after(WAIT):
            async with connect(server, Era.RETRY) as client, anyio.create_task_group() as group:

                async def call(tool: str) -> None:
                    results.append(text_of(await client.call_tool(tool)))

                group.start_soon(call, "untimed")
                await until(lambda: held.started)
                group.start_soon(call, "plain")
                # Waiting for a thread is waiting within one's time.
                async with limits.expiring(lambda: LIMIT in limits.seconds, LIMIT):
                    with pytest.raises(MCPError, match="timed out"):
                        await client.call_tool("timed")
                assert (results, limiter.borrowed_tokens, held.started) == ([], 1, 1)
                held.release.set()
    assert sorted(results) == ["done", "ran"]


async def test_timed_out_body_can_ask_nothing(era: Era, limits: TimeLimits, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="roundtrip")
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()
    raised: list[BaseException] = []
    server = Server[Any]("slow")

    @server.tool(timeout=LIMIT)
    def ask(ctx: Context[Any, Any]) -> int:
        begun.set()
        release.wait(WAIT)
        try:
            return ctx.blocking.ask("left", LEFT)
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            ended.set()

    person = Person(ONE)
    with anyio.fail_after(WAIT):
        async with connect(server, era, person) as client, limits.expiring(begun.is_set):
            with pytest.raises(MCPError):
                await client.call_tool("ask")
            release.set()
            await anyio.to_thread.run_sync(ended.wait, WAIT)
            await until(lambda: len(caplog.records) == 2)
    assert [type(error).__name__ for error in raised] == ["AskedTooLate"]
    assert person.asked == []
    timed_out, failed = [record for record in caplog.records if record.name == "roundtrip"]
    assert timed_out.levelno == logging.WARNING
    assert failed.getMessage() == "a function raised an exception in a thread whose call had ended"


async def test_step_running_in_a_timed_out_body_is_stopped() -> None:
    server = Server[Any]("slow")
    stopped: list[str] = []

    async def hangs() -> None:
        try:
            await hang()
        except BaseException as error:
            stopped.append(type(error).__name__)
            raise

    @server.tool(timeout=LIMIT)
    def ask(ctx: Context[Any, Any]) -> str:
        ctx.blocking.step("hangs", hangs)
        return "never"

    assert_timed_out(await failure_of(server, Era.RETRY, "ask"), "ask")
    assert stopped == ["CancelledError"]


def test_server_outlives_the_loop_of_its_abandoned_threads(held: Held, limits: TimeLimits) -> None:
    server = slots_of(held)

    async def lose() -> int:
        SHARED.slots().limiter.total_tokens = 1
        before = held.started
        async with limits.expiring(lambda: held.started > before):
            assert_timed_out(await failure_of(server, Era.RETRY, "timed"), "timed")
        assert_refused(await failure_of(server, Era.RETRY, "untimed"), "untimed", 1)
        return held.started

    async def serve() -> str:
        async with connect(server, Era.RETRY) as client:
            return text_of(await client.call_tool("timed"))

    assert anyio.run(lose) == 1
    assert anyio.run(lose) == 2
    held.release.set()
    assert anyio.run(serve) == "done"
