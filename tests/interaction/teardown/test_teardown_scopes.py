"""Dependencies are entered and exited in the leg's own task: context variables, cancel scopes and task groups hold."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult

from roundtrip import Context, Depends, Elicit, Event, Resolve, Server
from roundtrip.testing import Era, Steps, User, served
from tests.interaction.teardown.held import LOG, later, server_of
from tests.kit.players import Person, Reply, connect, text_of
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio

LOCALE: ContextVar[str] = ContextVar("locale", default="none")


async def play(server: Server, era: Era, *replies: Reply) -> str:
    """The text of one call, or of the error that answers it, by a client whose task nothing is left over in."""
    with anyio.fail_after(WAIT):
        async with connect(server, era, Person(*replies)) as client:
            return await said(client)


async def said(client: Client) -> str:
    try:
        text = text_of(await client.call_tool("order"))
    except MCPError as error:
        text = error.message
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await anyio.lowlevel.checkpoint()
    return text


# Context variables.


async def locale_later() -> AsyncGenerator[str]:
    token = LOCALE.set("inside")
    try:
        yield LOCALE.get()
    finally:
        LOCALE.reset(token)


async def test_context_is_restored_however_the_leg_ends(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    async def order(ctx: Context, fails: bool, locale: Annotated[str, Depends(locale_later)]) -> str:
        await ctx.ask("sure", "Sure?", bool)
        if fails:
            raise ValueError(LOCALE.get())
        return LOCALE.get()

    async with connect(server_of(order), era, Person(*[{"value": True}] * 2)) as client:
        assert text_of(await client.call_tool("order", {"fails": False})) == "inside"
        assert LOCALE.get() == "none"
        assert text_of(await client.call_tool("order", {"fails": True})) == "Error executing tool order: inside"
        assert LOCALE.get() == "none"
    assert not [record for record in caplog.records if "failed while exiting" in record.getMessage()]


async def test_unrestored_context_stays_in_the_call() -> None:
    async def forgets() -> AsyncGenerator[str]:
        before = LOCALE.get()
        LOCALE.set("forgotten")
        yield before

    async def order(before: str = Depends(forgets)) -> str:
        return f"{before} {LOCALE.get()}"

    # In memory, where a call may run in its client's own task, the client would find it.
    async with served(server_of(order)) as url:
        for _ in range(2):
            assert (await User(url, era=Era.RETRY).call("order")).text == "none forgotten"


# Deadlines and cancel scopes.


EXPIRE: list[Callable[[], object]] = []
"""Ends the time of the deadline that a dependency has set."""


async def hang() -> None:
    """Let the deadline of the dependency pass, and wait for ever."""
    EXPIRE.pop()()
    await anyio.sleep_forever()


def expire_by(scope: anyio.CancelScope) -> None:
    EXPIRE[:] = [lambda: setattr(scope, "deadline", -math.inf)]


def fail_after() -> Generator[None]:
    with anyio.fail_after(WAIT) as scope:
        expire_by(scope)
        yield


async def timeout() -> AsyncGenerator[None]:
    async with asyncio.timeout(WAIT) as limit:
        EXPIRE[:] = [lambda: limit.reschedule(0)]
        yield


def move_on() -> Generator[None]:
    with anyio.move_on_after(WAIT) as scope:
        expire_by(scope)
        yield


def held_by_task() -> Generator[None]:
    task = asyncio.current_task()
    yield
    assert task is not None


# A plain generator needs the loop for its cancel scope.
DEADLINES = pytest.mark.parametrize(
    ("limit", "why"),
    [
        pytest.param(Depends(fail_after, inline=True), "TimeoutError", id="fail_after"),
        pytest.param(Depends(later(fail_after)), "TimeoutError", id="fail_after_later"),
        pytest.param(Depends(timeout), "TimeoutError", id="timeout"),
        pytest.param(Depends(move_on, inline=True), "dependency 'move_on' cancelled the call", id="move_on"),
        pytest.param(Depends(later(move_on)), "dependency 'move_on_later' cancelled the call", id="move_on_later"),
    ],
)
TWO_DEADLINES = pytest.mark.parametrize(
    ("limit", "why"),
    [
        pytest.param(Depends(timeout), "TimeoutError", id="timeout"),
        pytest.param(Depends(move_on, inline=True), "dependency 'move_on' cancelled the call", id="move_on"),
    ],
)


@DEADLINES
async def test_a_deadline_of_a_dependency_ends_the_body(limit: Any, why: str) -> None:
    trace = Steps()

    async def order(limit: Annotated[None, limit]) -> str:
        try:
            await hang()
        finally:
            LOG.append("body ended")
        return "never"

    assert await play(server_of(order, trace=trace), Era.RETRY) == f"Error executing tool order: {why}"
    assert LOG == ["body ended"]
    assert trace.events[-1] is Event.FAIL


@pytest.mark.parametrize(
    "scope", [fail_after, move_on, lambda: (yield from held_by_task())], ids=["deadline", "scope", "task"]
)
async def test_plain_generator_in_a_thread_is_told_to_run_inline(scope: Callable[..., Any]) -> None:
    def below(limit: Annotated[None, Depends(scope)]) -> None: ...

    async def order(below: None = Depends(below)) -> str:
        raise AssertionError("the body must not run")

    assert "must not use the event loop, because it runs in a worker thread; use Depends(" in await play(
        server_of(order), Era.RETRY
    )


@TWO_DEADLINES
async def test_surrounding_dependencies_learn_of_the_deadline(limit: Any, why: str) -> None:
    async def outer() -> AsyncGenerator[None]:
        try:
            yield
        except Exception as error:
            LOG.append(f"outer: {type(error).__name__}")
            raise

    async def inner(limit: Annotated[None, limit]) -> AsyncGenerator[None]:
        try:
            yield
        except asyncio.CancelledError:
            LOG.append("inner: cancelled")
            raise

    async def order(
        outer: Annotated[None, Depends(outer)],
        limit: Annotated[None, limit],
        inner: Annotated[None, Depends(inner)],
    ) -> str:
        await hang()
        return "never"

    assert await play(server_of(order), Era.RETRY) == f"Error executing tool order: {why}"
    assert ["inner: cancelled", f"outer: {'TimeoutError' if why == 'TimeoutError' else 'DependencyEndedCall'}"] == LOG


@TWO_DEADLINES
async def test_dependency_swallowing_a_foreign_cancellation_is_not_blamed(limit: Any, why: str) -> None:
    async def swallows(limit: Annotated[None, limit]) -> AsyncGenerator[None]:
        try:
            yield
        except asyncio.CancelledError:
            LOG.append("swallowed")

    async def order(limit: Annotated[None, limit], inner: Annotated[None, Depends(swallows)]) -> str:
        await hang()
        return "never"

    assert await play(server_of(order), Era.RETRY) == f"Error executing tool order: {why}"
    assert LOG == ["swallowed"]


@TWO_DEADLINES
@pytest.mark.parametrize("by_body", [True, False])
async def test_a_deadline_passes_while_a_live_client_thinks(limit: Any, why: str, by_body: bool) -> None:
    """The retry era has no such deadline: nothing is open while the user thinks."""

    class Slow(Person):
        async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            await hang()
            raise AssertionError

    async def sure(limit: Annotated[None, limit]) -> Elicit[bool]:
        return Elicit("Sure?", bool)

    async def by_resolver(sure: Annotated[bool, Resolve(sure)]) -> str:
        return str(sure)

    async def in_body(ctx: Context, limit: Annotated[None, limit]) -> str:
        return str(await ctx.ask("sure", "Sure?", bool))

    trace = Steps()
    with anyio.fail_after(WAIT):
        async with connect(server_of(in_body if by_body else by_resolver, trace=trace), Era.LIVE, Slow()) as client:
            assert await said(client) == f"Error executing tool order: {why}"
    assert trace.events[-1] is Event.FAIL


# Task groups.


async def anyio_group() -> AsyncGenerator[Callable[[Callable[[], Any]], object]]:
    async with anyio.create_task_group() as group:
        yield group.start_soon
        group.cancel_scope.cancel()


async def asyncio_group() -> AsyncGenerator[Callable[[Callable[[], Any]], object]]:
    async with asyncio.TaskGroup() as group:
        yield lambda fn: group.create_task(fn())


GROUPS = pytest.mark.parametrize("group", [anyio_group, asyncio_group])
GROUPS_OF_ERAS = pytest.mark.parametrize(
    ("era", "group"), [(Era.RETRY, anyio_group), (Era.RETRY, asyncio_group), (Era.LIVE, asyncio_group)]
)
Start = Callable[[Callable[[], Any]], object]


async def background() -> None:
    LOG.append("child")
    await anyio.lowlevel.checkpoint()


async def crashes() -> None:
    await anyio.lowlevel.checkpoint()
    raise ValueError("a child crashed")


async def waits() -> None:
    try:
        await anyio.sleep_forever()
    except asyncio.CancelledError:
        LOG.append("child cancelled")
        raise


@GROUPS
async def test_a_child_that_crashes_ends_the_call_with_its_error(group: Callable[..., Any]) -> None:
    trace = Steps()

    async def order(start: Annotated[Start, Depends(group)]) -> str:
        start(crashes)
        try:
            await anyio.sleep_forever()
        finally:
            LOG.append("body ended")
        return "never"

    assert await play(server_of(order, trace=trace), Era.RETRY) == "Error executing tool order: a child crashed"
    assert LOG == ["body ended"]
    assert trace.transitions[-1].detail == {"error": "ValueError: a child crashed"}


async def nested_groups() -> AsyncGenerator[Callable[[Callable[[], Any]], object]]:
    async with anyio.create_task_group() as outer:
        outer.start_soon(waits)
        async with asyncio.TaskGroup() as inner:
            yield lambda fn: inner.create_task(fn())


@pytest.mark.parametrize("group", [anyio_group, asyncio_group, nested_groups])
async def test_body_error_ends_child_tasks_unwrapped(group: Callable[..., Any]) -> None:
    async def outer() -> AsyncGenerator[None]:
        try:
            yield
        except Exception as error:
            LOG.append(f"outer: {type(error).__name__}")
            raise

    async def order(outer: Annotated[None, Depends(outer)], start: Annotated[Start, Depends(group)]) -> str:
        start(waits)
        await anyio.lowlevel.checkpoint()
        raise LookupError("no")

    assert await play(server_of(order), Era.RETRY) == "Error executing tool order: no"
    children = ["child cancelled"] * (2 if group is nested_groups else 1)
    assert [*children, "outer: LookupError"] == LOG


@GROUPS_OF_ERAS
async def test_question_ends_child_tasks_and_the_next_leg_restarts_them(era: Era, group: Callable[..., Any]) -> None:
    async def order(ctx: Context, start: Annotated[Start, Depends(group)]) -> str:
        start(background)
        await anyio.lowlevel.checkpoint()
        return str(await ctx.ask("sure", "Sure?", bool))

    trace = Steps()
    assert await play(server_of(order, trace=trace), era, {"value": True}) == "True"
    assert ["child"] * (2 if era is Era.RETRY else 1) == LOG
    assert trace.events[-1] is Event.FINISH


@GROUPS
async def test_decline_propagates_through_a_task_group(group: Callable[..., Any]) -> None:
    trace = Steps()

    async def order(ctx: Context, start: Annotated[Start, Depends(group)]) -> str:
        return str(await ctx.ask("sure", "Sure?", bool))

    assert "decline" in await play(server_of(order, trace=trace), Era.RETRY, "decline")
    assert trace.events[-1] is Event.DECLINE


@GROUPS_OF_ERAS
async def test_a_child_that_asks_suspends_the_leg(era: Era, group: Callable[..., Any]) -> None:
    async def order(ctx: Context, start: Annotated[Start, Depends(group)]) -> str:
        answered = anyio.Event()

        async def ask() -> None:
            LOG.append(str(await ctx.ask("sure", "Sure?", bool)))
            answered.set()

        start(ask)
        await answered.wait()
        return LOG[-1]

    trace = Steps()
    assert await play(server_of(order, trace=trace), era, {"value": True}) == "True"
    assert trace.events[-1] is Event.FINISH


@GROUPS
async def test_a_client_that_cancels_natively_stays_cancelled(group: Callable[..., Any]) -> None:
    """As `asyncio.timeout` or `asyncio.wait_for` around a call do."""

    async def swallows() -> AsyncGenerator[None]:
        try:
            yield
        except asyncio.CancelledError as error:
            LOG.append(type(error).__name__)

    async def order(swallows: Annotated[None, Depends(swallows)], start: Annotated[Start, Depends(group)]) -> str:
        EXPIRE.pop()()
        await anyio.sleep_forever()
        return "never"

    trace = Steps()
    limit = asyncio.timeout(WAIT)
    EXPIRE[:] = [lambda: limit.reschedule(0)]
    with pytest.raises(TimeoutError):
        async with limit:
            await User(server_of(order, trace=trace), era=Era.RETRY).call("order")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await until(lambda: trace.transitions and trace.transitions[-1].event is Event.FAIL)
    assert LOG == ["CancelledError"]
    assert trace.transitions[-1].detail == {"error": "cancelled"}
