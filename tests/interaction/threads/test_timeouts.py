"""A tool's own work has a time limit, which does not count the time of users and pages."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import anyio
import anyio.to_thread
import pytest
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult

from roundtrip import Context, Elicit, ElicitUrl, Event, Resolve, Server
from roundtrip.server.slots import SHARED
from roundtrip.testing import Era, Steps
from tests.kit.held_threads import Held
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect, text_of
from tests.kit.tiers import at_night
from tests.kit.visitors import Visitor, visiting

pytestmark = pytest.mark.anyio

SHORT = 0.25
"""For what never gets done anyway, but has to begin."""
LONG = 0.8
"""For what must not be mistaken for late on a slow machine."""
LEFT = Elicit("Left?", int)
ONE = {"value": 1}


class Slow(Person):
    """User who thinks longer than any tool may work."""

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        await anyio.sleep(LONG * 1.5)
        return await super().__call__(context, params)


@asynccontextmanager
async def few_threads(number: int) -> AsyncGenerator[anyio.CapacityLimiter]:
    """The event loop has so many threads; at the end none of them is held any more."""
    limiter = SHARED.slots().limiter
    limiter.total_tokens = number
    yield limiter
    await until(lambda: not limiter.borrowed_tokens)


async def until(condition: Callable[[], object]) -> None:
    """Wait for an effect of threads."""
    with anyio.fail_after(WAIT):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def failure_of(server: Server[Any], era: Era, tool: str, person: Person | None = None) -> MCPError:
    with anyio.fail_after(WAIT):
        async with connect(server, era, person) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool(tool)
    return caught.value


def assert_timed_out(error: MCPError, tool: str, seconds: float) -> None:
    assert error.code == -32000
    assert error.message == f"Tool {tool!r} timed out after {seconds:g}s"
    assert error.data == {"reason": "tool_timeout", "tool": tool, "timeout": seconds}


# The error, the log and the trace.


async def test_slow_tool_is_answered_with_its_name_and_limit(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    trace = Steps()
    server = Server[Any]("slow", trace=trace)

    @server.tool(timeout=SHORT)
    async def fetch() -> str:
        await anyio.sleep_forever()
        return "never"

    assert_timed_out(await failure_of(server, era, "fetch"), "fetch", SHORT)
    assert trace.steps[-1].event is Event.FAIL
    assert trace.steps[-1].detail == {"error": "timed out"}
    (record,) = [record for record in caplog.records if record.name == "roundtrip"]
    assert (record.levelno, record.getMessage()) == (logging.WARNING, f"tool 'fetch' timed out after {SHORT}s")


async def test_slow_plain_tool_is_answered_while_its_thread_continues(
    era: Era, caplog: pytest.LogCaptureFixture, held: Held
) -> None:
    server = Server[Any]("slow")
    server.tool(name="fetch", timeout=SHORT)(held.__call__)
    async with few_threads(40) as limiter:
        assert_timed_out(await failure_of(server, era, "fetch"), "fetch", SHORT)
        assert (held.started, held.ended, limiter.borrowed_tokens) == (1, 0, 1)
        held.release.set()
    assert held.ended == 1
    (record,) = [record for record in caplog.records if record.name == "roundtrip"]
    told = f"tool 'fetch' timed out after {SHORT}s; still running in a thread, whose slot it keeps: 1"
    assert record.getMessage() == told


async def test_timely_tool_is_answered_normally(era: Era) -> None:
    server = Server[Any]("quick")

    @server.tool(timeout=WAIT)
    async def waits() -> str:
        await anyio.sleep(0.01)
        return "waited"

    @server.tool(timeout=WAIT)
    def plain() -> str:
        return "ran"

    @server.tool(timeout=WAIT)
    def crashes() -> str:
        raise ValueError("no")

    async with connect(server, era) as client:
        assert text_of(await client.call_tool("waits")) == "waited"
        assert text_of(await client.call_tool("plain")) == "ran"
        assert (await client.call_tool("crashes")).is_error


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_a_time_that_cannot_be_is_rejected_at_registration(timeout: float) -> None:
    server = Server[Any]("slow")
    with pytest.raises(ValueError, match=r"tool 'fetch': timeout= must be a positive, finite number of seconds, got"):

        @server.tool(timeout=timeout)
        async def fetch() -> str:  # pyright: ignore[reportUnusedFunction]
            return ""


# People take their time.


async def in_body(ctx: Context[Any, Any]) -> int:
    return await ctx.ask("left", LEFT)


def in_thread(ctx: Context[Any, Any]) -> int:
    return ctx.blocking.ask("left", LEFT)


async def left() -> Elicit[int]:
    return LEFT


async def in_resolver(value: Annotated[int, Resolve(left)]) -> int:
    return value


@pytest.mark.parametrize("body", [in_body, in_thread, in_resolver])
async def test_a_person_may_take_longer_than_the_tool(era: Era, body: Callable[..., Any]) -> None:
    server = Server[Any]("patient")
    server.tool(name="ask", timeout=LONG)(body)
    with anyio.fail_after(WAIT):
        async with connect(server, era, Slow(ONE)) as client:
            assert text_of(await client.call_tool("ask")) == "1"


async def test_user_may_confirm_slower_than_the_tool_timeout(era: Era) -> None:
    server = Server[Any]("patient")

    @server.tool(timeout=LONG, confirm="Sure?")
    async def wipe() -> str:
        return "wiped"

    with anyio.fail_after(WAIT):
        async with connect(server, era, Slow({})) as client:
            assert text_of(await client.call_tool("wipe")) == "wiped"


@pytest.mark.parametrize("place", ["body", "thread", "resolver"])
async def test_tool_must_finish_in_time_after_the_answer(era: Era, place: str, held: Held) -> None:
    server = Server[Any]("slow")

    async def follow(left: Annotated[int, Resolve(left)]) -> int:
        await anyio.sleep_forever()
        return left

    async def waits(ctx: Context[Any, Any]) -> int:
        await ctx.ask("left", LEFT)
        await anyio.sleep_forever()
        return 0

    def blocks(ctx: Context[Any, Any]) -> str:
        ctx.blocking.ask("left", LEFT)
        return held()

    async def resolved(value: Annotated[int, Resolve(follow)]) -> int:
        return value

    body: Callable[..., Any] = {"body": waits, "thread": blocks, "resolver": resolved}[place]
    # It has to have asked by then.
    server.tool(name="ask", timeout=LONG)(body)
    person = Person(ONE)
    assert_timed_out(await failure_of(server, era, "ask", person), "ask", LONG)
    assert len(person.asked) == 1


async def test_live_answer_restarts_the_tool_clock() -> None:
    server = Server[Any]("steady")

    @server.tool(timeout=LONG)
    async def ask(ctx: Context[Any, Any]) -> str:
        for number in range(3):
            await anyio.sleep(LONG / 2)
            await ctx.ask(f"left-{number}", LEFT)
        return "done"

    with anyio.fail_after(WAIT):
        async with connect(server, Era.LIVE, Person(ONE, ONE, ONE)) as client:
            assert text_of(await client.call_tool("ask")) == "done"


async def test_other_tasks_have_time_while_one_asks() -> None:
    server = Server[Any]("both")
    worked = anyio.Event()

    @server.tool(timeout=LONG)
    async def ask(ctx: Context[Any, Any]) -> None:
        async def work() -> None:
            # Past the tool's time, but not past the person's.
            await anyio.sleep(LONG * 1.2)
            worked.set()

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await ctx.ask("left", LEFT)

    with anyio.fail_after(WAIT):
        async with connect(server, Era.LIVE, Slow(ONE)) as client:
            assert not (await client.call_tool("ask")).is_error
    assert worked.is_set()


async def test_abandoned_question_restarts_the_clock() -> None:
    server = Server[Any]("slow")

    @server.tool(timeout=SHORT)
    async def ask(ctx: Context[Any, Any]) -> str:
        with anyio.move_on_after(SHORT / 2):
            await ctx.ask("left", LEFT)
        await anyio.sleep_forever()
        return "never"

    assert_timed_out(await failure_of(server, Era.LIVE, "ask", Slow(ONE)), "ask", SHORT)


# Pages.


async def test_waiting_for_a_page_counts_for_nothing(era: Era) -> None:
    looks: list[str] = []

    async def done() -> str | None:
        looks.append("looked")
        return "ada" if len(looks) == 4 else None

    server = Server[Any]("shop")

    @server.tool(timeout=LONG)
    async def export(ctx: Context[Any, Any]) -> str:
        page = ElicitUrl[str]("Log in.", "https://bookshop.example/login", done=done, wait=WAIT)
        return await ctx.ask("login", page)

    with anyio.fail_after(WAIT):
        async with visiting(server, era, Visitor()) as client:
            assert text_of(await client.call_tool("export")) == "ada"


@pytest.mark.parametrize("plain", [False, True])
async def test_looking_whether_a_page_is_done_is_work(era: Era, plain: bool, held: Held) -> None:
    server = Server[Any]("shop")

    async def hangs() -> str:
        await anyio.sleep_forever()
        return "never"

    @server.tool(timeout=SHORT)
    async def export(ctx: Context[Any, Any]) -> str:
        done = held.__call__ if plain else hangs
        page = ElicitUrl[str]("Log in.", "https://bookshop.example/login", done=done, wait=WAIT)
        return await ctx.ask("login", page)

    async with few_threads(40):
        with anyio.fail_after(WAIT):
            async with visiting(server, era, Visitor()) as client:
                with pytest.raises(MCPError) as caught:
                    await client.call_tool("export")
        held.release.set()
    assert_timed_out(caught.value, "export", SHORT)


# Whatever takes the time, and whatever becomes of it.


@pytest.mark.parametrize("plain", [False, True])
async def test_a_resolver_that_hangs_is_timed_out(era: Era, plain: bool, held: Held) -> None:
    async def hangs() -> str:
        await anyio.sleep_forever()
        return "never"

    async def beside() -> str:
        return "beside"

    server = Server[Any]("slow")
    resolver = held.__call__ if plain else hangs

    @server.tool(timeout=SHORT)
    async def fetch(
        value: Annotated[str, Resolve(resolver, key="value")], other: Annotated[str, Resolve(beside)]
    ) -> str:
        return value + other

    async with few_threads(40):
        assert_timed_out(await failure_of(server, era, "fetch"), "fetch", SHORT)
        held.release.set()


async def test_a_step_that_hangs_is_timed_out(era: Era, held: Held) -> None:
    server = Server[Any]("slow")

    @server.tool(timeout=SHORT)
    async def fetch(ctx: Context[Any, Any]) -> str:
        return await ctx.step("held", held.__call__)

    async with few_threads(40):
        assert_timed_out(await failure_of(server, era, "fetch"), "fetch", SHORT)
        held.release.set()


async def swallows() -> str:
    with suppress(BaseException):
        await anyio.sleep_forever()
    return "never mind"


async def crashes() -> str:
    try:
        await anyio.sleep_forever()
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
    await anyio.sleep_forever()
    return "never"


async def lost_native_children_and_crashes() -> str:
    try:
        await lost_native_children()
    finally:
        raise BaseExceptionGroup("cleaning up failed", [ValueError("cleaning up failed")])


@pytest.mark.parametrize(
    "body",
    [
        swallows,
        crashes,
        has_children,
        has_native_children,
        lost_native_children,
        lost_native_children_and_crashes,
    ],
)
@pytest.mark.parametrize("asking", [*at_night(False), True])
async def test_stopped_body_has_timed_out_for_any_reaction(era: Era, body: Callable[..., Any], asking: bool) -> None:
    trace = Steps()
    server = Server[Any]("slow", trace=trace)

    async def with_context(ctx: Context[Any, Any]) -> str:
        return await body()

    server.tool(name="fetch", timeout=SHORT)(with_context if asking else body)
    server.tool(name="greet")(lambda: "hello")
    with anyio.fail_after(WAIT):
        async with connect(server, era) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("fetch")
            # The connection lives on.
            assert text_of(await client.call_tool("greet")) == "hello"
    assert_timed_out(caught.value, "fetch", SHORT)
    assert [step.detail for step in trace.steps if step.event is Event.FAIL] == [{"error": "timed out"}]


async def test_exception_of_a_stopped_body_is_logged(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    server = Server[Any]("slow")
    server.tool(timeout=SHORT)(crashes)
    await failure_of(server, era, "crashes")
    (record,) = [record for record in caplog.records if record.name == "roundtrip"]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "cleaning up failed"


async def test_call_abandoned_by_its_client_has_not_timed_out(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    started, over = anyio.Event(), anyio.Event()
    trace = Steps()

    def observe(step: Any) -> None:
        trace(step)
        if step.event is Event.FAIL:
            over.set()

    server = Server[Any]("slow", trace=observe)

    @server.tool(timeout=WAIT)
    async def fetch() -> str:
        started.set()
        await anyio.sleep_forever()
        return "never"

    with anyio.fail_after(WAIT):
        async with connect(server, era) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "fetch")
                await started.wait()
                group.cancel_scope.cancel()
            await over.wait()
    assert trace.steps[-1].detail == {"error": "cancelled"}
    assert not [record for record in caplog.records if "timed out" in record.getMessage()]


# Tools that call tools.


async def test_nested_tool_has_its_own_timeout(era: Era) -> None:
    server = Server[Any]("nested")

    @server.tool(timeout=SHORT)
    async def inner() -> str:
        await anyio.sleep_forever()
        return "never"

    @server.tool(timeout=WAIT)
    async def outer() -> str:
        try:
            await server.call_tool("inner", {})
        except MCPError as error:
            return error.message
        return "never"

    async with connect(server, era) as client:
        assert text_of(await client.call_tool("outer")) == f"Tool 'inner' timed out after {SHORT}s"


async def test_outer_timeout_includes_the_nested_tool(era: Era) -> None:
    server = Server[Any]("nested")

    @server.tool(timeout=WAIT)
    async def inner() -> str:
        await anyio.sleep_forever()
        return "never"

    @server.tool(timeout=SHORT)
    async def outer() -> str:
        return str(await server.call_tool("inner", {}))

    assert_timed_out(await failure_of(server, era, "outer"), "outer", SHORT)


@pytest.mark.parametrize("inner", [None, LONG])
async def test_question_of_an_inner_tool_stops_the_outer_clock(inner: float | None) -> None:
    server = Server[Any]("nested")
    server.tool(name="inner", timeout=inner)(in_body)

    @server.tool(timeout=LONG)
    async def outer(ctx: Context[Any, Any]) -> str:
        return text_of(await server.call_tool("inner", {}, ctx))

    with anyio.fail_after(WAIT):
        async with connect(server, Era.LIVE, Slow(ONE)) as client:
            assert text_of(await client.call_tool("outer")) == "1"


# Threads.


def slots_of(held: Held, *, seconds: float = SHORT) -> Server[Any]:
    """Make plain tools with and without a timeout, and one that needs no thread."""
    server = Server[Any]("threads")
    server.tool(name="timed", timeout=seconds)(held.__call__)
    server.tool(name="untimed")(held.__call__)

    @server.tool()
    async def loop() -> str:
        return "hello"

    async def resolved(value: Annotated[str, Resolve(held.__call__, key="value")]) -> str:
        return value

    server.tool(name="resolved")(resolved)
    return server


def assert_refused(error: MCPError, tool: str, threads: int) -> None:
    assert error.code == -32000
    assert error.data == {"reason": "threads_exhausted", "tool": tool}
    assert error.message.startswith(
        f"Tool {tool!r} cannot run: no thread is free: functions whose calls timed out still run in all {threads}"
    )


async def test_sixty_slow_calls_use_and_return_forty_threads(era: Era, held: Held) -> None:
    # Time enough for forty threads to start.
    server = slots_of(held, seconds=LONG)
    errors: list[MCPError] = []
    limiter = SHARED.slots().limiter

    @server.tool()
    def other() -> str:
        return "served"

    assert limiter.total_tokens == 60
    with anyio.fail_after(WAIT):
        async with connect(server, era) as client:

            async def call() -> None:
                with pytest.raises(MCPError) as caught:
                    await client.call_tool("timed")
                errors.append(caught.value)

            async with anyio.create_task_group() as group:
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


async def test_call_is_rejected_once_all_threads_are_lost(era: Era, held: Held) -> None:
    server = slots_of(held)
    errors: dict[str, MCPError] = {}
    async with few_threads(1):
        with anyio.fail_after(WAIT):
            async with connect(server, era) as client, anyio.create_task_group() as group:

                async def call(tool: str) -> None:
                    with pytest.raises(MCPError) as caught:
                        await client.call_tool(tool)
                    errors[tool] = caught.value

                group.start_soon(call, "timed")
                await until(lambda: held.started)
                group.start_soon(call, "untimed")
        assert_timed_out(errors["timed"], "timed", SHORT)
        assert_refused(errors["untimed"], "untimed", 1)
        assert held.started == 1
        held.release.set()


async def test_threads_that_are_only_busy_are_waited_for(era: Era, held: Held) -> None:
    server = slots_of(held)

    @server.tool(timeout=WAIT)
    def plain() -> str:
        return "ran"

    results: list[str] = []
    async with few_threads(1) as limiter:
        with anyio.fail_after(WAIT):
            async with connect(server, era) as client, anyio.create_task_group() as group:

                async def call(tool: str) -> None:
                    results.append(text_of(await client.call_tool(tool)))

                group.start_soon(call, "untimed")
                await until(lambda: held.started)
                group.start_soon(call, "plain")
                # Waiting for a thread is waiting within one's time.
                with pytest.raises(MCPError, match="timed out"):
                    await client.call_tool("timed")
                assert (results, limiter.borrowed_tokens, held.started) == ([], 1, 1)
                held.release.set()
    assert sorted(results) == ["done", "ran"]


async def test_timed_out_body_can_ask_nothing(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="roundtrip")
    release, ended = threading.Event(), threading.Event()
    raised: list[BaseException] = []
    server = Server[Any]("slow")

    @server.tool(timeout=SHORT)
    def ask(ctx: Context[Any, Any]) -> int:
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
        async with connect(server, era, person) as client:
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


async def test_step_running_in_a_timed_out_body_is_stopped(era: Era) -> None:
    server = Server[Any]("slow")
    stopped: list[str] = []

    async def hangs() -> None:
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            stopped.append(type(error).__name__)
            raise

    @server.tool(timeout=SHORT)
    def ask(ctx: Context[Any, Any]) -> str:
        ctx.blocking.step("hangs", hangs)
        return "never"

    assert_timed_out(await failure_of(server, era, "ask"), "ask", SHORT)
    assert stopped == ["CancelledError"]


def test_server_outlives_the_loop_of_its_abandoned_threads(held: Held) -> None:
    server = slots_of(held)

    async def lose() -> int:
        SHARED.slots().limiter.total_tokens = 1
        assert_timed_out(await failure_of(server, Era.RETRY, "timed"), "timed", SHORT)
        assert_refused(await failure_of(server, Era.RETRY, "untimed"), "untimed", 1)
        return held.started

    async def serve() -> str:
        async with connect(server, Era.RETRY) as client:
            return text_of(await client.call_tool("timed"))

    assert anyio.run(lose) == 1
    assert anyio.run(lose) == 2
    held.release.set()
    assert anyio.run(serve) == "done"
