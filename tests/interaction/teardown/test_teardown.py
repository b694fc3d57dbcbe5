"""Code after the `yield` of a dependency: it runs when the leg ends, and receives the error that ended it."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack
from typing import Annotated, Any

import anyio
import pytest
from mcp_types import InputRequiredResult

from roundtrip import Context, Depends, Elicit, ElicitUrl, Event, Resolve, ToolError
from roundtrip.testing import ACCEPT, DECLINE, Era, LegByLeg, Steps, User, served
from roundtrip.testing.scripts import UserAction
from tests.interaction.teardown.held import (
    CLOSED,
    LOG,
    OPENED,
    ended_by,
    later,
    logged,
    play,
    server_of,
    session,
    sure,
)
from tests.kit.held_threads import Held
from tests.kit.players import connect, text_of
from tests.kit.time_limits import LIMIT, TimeLimits, hang
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio


async def test_dependencies_exit_in_reverse_order_after_success() -> None:
    async def order(session: str = Depends(session)) -> str:
        LOG.append("body")
        return session

    assert await play(server_of(order), Era.RETRY) == "session on connection"
    assert [*OPENED, "body", *CLOSED] == LOG


@pytest.mark.parametrize("plain", [False, True])
async def test_an_error_of_the_body_is_thrown_in(plain: bool) -> None:
    async def order(session: str = Depends(session)) -> str:
        raise ToolError("no")

    def order_in_a_thread(session: str = Depends(session)) -> str:
        raise ValueError("no")

    text = await play(server_of(order_in_a_thread if plain else order), Era.RETRY)
    assert text == "Error executing tool order: no"
    assert ended_by("ValueError" if plain else "ToolError") == LOG


async def test_result_of_a_wrong_type_is_not_a_success() -> None:
    async def order(session: str = Depends(session)) -> int:
        return session  # type: ignore[return-value]

    assert "Error executing tool order" in await play(server_of(order), Era.RETRY)
    assert LOG[:2] == OPENED
    assert not set(LOG) & set(CLOSED)
    assert len(LOG) == 4


async def asks_in_a_resolver(certain: Annotated[bool, Resolve(sure)], session: str = Depends(session)) -> str:
    return f"{session} {certain}"


async def asks_in_the_body(ctx: Context, session: str = Depends(session)) -> str:
    return f"{session} {await ctx.ask('sure', 'Sure?', bool)}"


def asks_in_a_thread(ctx: Context, session: str = Depends(session)) -> str:
    return f"{session} {ctx.blocking.ask('sure', 'Sure?', bool)}"


@pytest.mark.parametrize(
    ("era", "tool"),
    [
        (Era.RETRY, asks_in_a_resolver),
        (Era.RETRY, asks_in_the_body),
        (Era.RETRY, asks_in_a_thread),
        (Era.LIVE, asks_in_the_body),
        (Era.LIVE, asks_in_a_thread),
    ],
)
async def test_question_exits_dependencies_and_its_answer_reenters_them(era: Era, tool: Callable[..., Any]) -> None:
    assert await play(server_of(tool), era, {"sure": True}) == "session on connection True"
    retried = ended_by("Suspension") if era is Era.RETRY else []
    assert [*retried, *OPENED, *CLOSED] == LOG


def asks_while_open() -> Generator[Elicit[bool]]:
    with logged("asks"):
        yield Elicit("Sure?", bool)


@pytest.mark.parametrize("asks", [asks_while_open, later(asks_while_open)])
async def test_a_dependency_that_is_held_open_cannot_ask(asks: Callable[[], Any]) -> None:
    async def order(value: bool = Depends(asks), session: str = Depends(session)) -> str:
        raise AssertionError("the body must not run")

    assert await play(server_of(order), Era.RETRY) == (
        f"Error executing tool order: context manager {asks.__name__!r} must not ask a question; ask in one of its "
        "dependencies"
    )
    assert LOG == ["open asks", "asks: InvalidSignature"]


@pytest.mark.parametrize(("era", "word"), [(Era.RETRY, "decline"), (Era.RETRY, "cancel"), (Era.LIVE, "cancel")])
async def test_decline_is_not_a_success(era: Era, word: str) -> None:
    trace = Steps()

    async def order(certain: Annotated[bool, Resolve(sure)], session: str = Depends(session)) -> str:
        raise AssertionError("the body must not run")

    assert f"elicitation was {word}" in await play(server_of(order, trace=trace), era, {"sure": UserAction(word)})
    assert trace.events[-1] is Event.DECLINE
    # The retry era's second leg hears of the refusal before it opens anything.
    assert (ended_by("Suspension") if era is Era.RETRY else ended_by("RoundtripError")) == LOG


async def test_decline_is_raised_inside_the_body(era: Era) -> None:
    trace = Steps()

    async def order(ctx: Context, session: str = Depends(session)) -> str:
        return str(await ctx.ask("sure", "Sure?", bool))

    assert "decline" in await play(server_of(order, trace=trace), era, {"sure": DECLINE})
    assert trace.events[-1] is Event.DECLINE
    retried = ended_by("Suspension") if era is Era.RETRY else []
    assert [*retried, *ended_by("QuestionDeclined")] == LOG


async def test_revision_exits_all_and_the_next_run_reenters(era: Era) -> None:
    async def order(ctx: Context, copies: Annotated[int, Resolve(how_many)], session: str = Depends(session)) -> str:
        LOG.append(f"body {copies}")
        await ctx.review("check", "All right?", of=["how_many"])
        return f"{copies}"

    assert await play(server_of(order), era, {"how_many": 1, "check": {"how_many": 2}}) == "2"
    # Both eras run it with 1, notice the change, and continue from there.
    assert LOG.count("body 1") == (2 if era is Era.RETRY else 1)
    assert "session: Revision" in LOG
    assert LOG[-3:] == ["body 2", *CLOSED]
    assert_each_is_left_before_it_is_entered_again()


async def how_many() -> Elicit[int]:
    return Elicit("How many?", int)


def assert_each_is_left_before_it_is_entered_again() -> None:
    marks = [line for line in LOG if not line.startswith("body")]
    for place in range(0, len(marks), 4):
        one, other, inner, outer = marks[place : place + 4]
        assert [one, other] == OPENED
        assert inner.startswith(("session: ", "close session"))
        assert outer == inner.replace("session", "connection")


@pytest.mark.parametrize("plain", [False, True])
async def test_a_body_that_takes_too_long_has_its_dependencies_cancelled(
    plain: bool, held: Held, limits: TimeLimits
) -> None:
    async def order(session: str = Depends(session)) -> None:
        await hang()

    def order_in_a_thread(session: str = Depends(session)) -> str:
        return held()

    server = server_of(order_in_a_thread if plain else order, timeout=LIMIT)
    async with limits.expiring(lambda: held.started):
        assert "timed out" in await play(server, Era.RETRY)
    held.release.set()
    # The thread may still use them; then they are left when it ends.
    await until(lambda: ended_by("CancelledError") == LOG)


@pytest.mark.usefixtures("limits")
async def test_slow_dependency_exit_times_out() -> None:
    async def slow() -> AsyncGenerator[str]:
        with logged("slow"):
            yield "slow"
            await hang()

    async def order(slow: str = Depends(slow), session: str = Depends(session)) -> str:
        return slow

    assert "timed out" in await play(server_of(order, timeout=LIMIT), Era.RETRY)
    # The last one was left well, and before the time was up.
    assert ["open slow", *OPENED, *CLOSED, "slow: CancelledError"] == LOG


class Leaving:
    """Dependency with an event for its end, and an event that a test sets when the client may leave."""

    def __init__(self) -> None:
        self.begun, self.over = anyio.Event(), anyio.Event()

    async def __call__(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.over.set()

    async def call(self, server: Any, era: Era) -> None:
        """Call, and cancel the call once it has begun."""
        async with connect(server, era) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "order")
            await self.begun.wait()
            group.cancel_scope.cancel()


@pytest.mark.parametrize(("era", "over_http"), [(Era.RETRY, True), (Era.LIVE, False)])
async def test_departing_client_cancels_its_dependencies(era: Era, over_http: bool) -> None:
    leaving, trace = Leaving(), Steps()

    async def order(told: None = Depends(leaving), session: str = Depends(session)) -> str:
        leaving.begun.set()
        await anyio.sleep_forever()
        return "never"

    server = server_of(order, trace=trace)
    with anyio.fail_after(WAIT):
        async with AsyncExitStack() as stack:
            await leaving.call(await stack.enter_async_context(served(server)) if over_http else server, era)
            await leaving.over.wait()
    assert ended_by("CancelledError") == LOG
    assert trace.transitions[-1].detail == {"error": "cancelled"}


async def test_hand_asking_body_notifies_its_dependencies_of_suspension() -> None:
    async def order(ctx: Context, session: str = Depends(session)) -> Any:
        return InputRequiredResult(request_state="mine") if ctx.request_state is None else "done"

    hopper = LegByLeg([server_of(order)])
    assert isinstance(await hopper.leg("order"), InputRequiredResult)
    assert ended_by("Suspension") == LOG
    assert text_of(await hopper.leg("order", state=hopper.token)) == "done"


async def fails(session: str = Depends(session)) -> str:
    raise ValueError("no")


def fails_before_its_yield(session: str = Depends(session)) -> Generator[str]:
    if session:
        raise ValueError("no")
    yield "never"


@pytest.mark.parametrize("dependency", [fails, fails_before_its_yield])
async def test_failing_dependency_exits_those_entered_before(dependency: Callable[..., Any]) -> None:
    async def order(value: str = Depends(dependency)) -> str:
        raise AssertionError("the body must not run")

    assert await play(server_of(order), Era.RETRY) == "Error executing tool order: no"
    assert ended_by("ValueError") == LOG


async def test_dependency_of_a_look_whether_a_page_is_finished_is_exited() -> None:
    async def done(session: str = Depends(session)) -> str:
        LOG.append("looked")
        return session

    async def order(ctx: Context) -> str:
        page = ElicitUrl[str]("Log in.", "https://shop.example/login", done=done, wait=0)
        LOG.append(f"body has {await ctx.ask('login', page)}")
        return "ordered"

    call = await User(server_of(order), {"login": ACCEPT}, era=Era.RETRY).call("order")
    assert call.text == "ordered"
    assert [*OPENED, "looked", *CLOSED, "body has session on connection"] == LOG
