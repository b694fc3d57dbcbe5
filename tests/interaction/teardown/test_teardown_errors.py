"""Errors of teardown are logged, and hide neither an error nor a question nor a success."""

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Annotated, Any

import anyio
import pytest

from roundtrip import Context, Depends
from roundtrip.testing import DECLINE, Era, User
from tests.interaction.teardown.held import (
    CLOSED,
    LOG,
    OPENED,
    ended_by,
    failures,
    later,
    logged,
    play,
    server_of,
    session,
)
from tests.kit.hosts import WAIT
from tests.kit.players import connect, text_of
from tests.kit.time_limits import LIMIT, hang

pytestmark = pytest.mark.anyio


def breaks() -> Generator[str]:
    try:
        yield "value"
    finally:
        raise LookupError("broken")


@pytest.mark.parametrize(
    ("other", "fn", "log"),
    [
        (session, later(breaks), [*OPENED, *CLOSED]),
        (functools.partial(logged, "plain"), breaks, ["open plain", "close plain"]),
    ],
)
async def test_exit_error_is_logged_and_the_call_succeeds(
    other: Callable[..., Any], fn: Callable[..., Any], log: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def order(other: Annotated[str, Depends(other)], value: Annotated[str, Depends(fn)]) -> str:
        return value

    # A call without a trace leaves plain dependencies in the thread of its body.
    async with connect(server_of(order), Era.RETRY) as client:
        assert text_of(await client.call_tool("order")) == "value"
    assert failures(caplog) == [
        f"dependency {fn.__name__!r} failed while exiting; the call is not affected: LookupError('broken')"
    ]
    # The others are left as if it had not happened.
    assert log == LOG


def twice() -> Generator[str]:
    yield "value"
    yield "again"


async def twice_later() -> AsyncGenerator[str]:
    yield "value"
    yield "again"


@pytest.mark.parametrize("fn", [twice, twice_later])
async def test_a_generator_that_yields_twice_is_closed_and_logged(
    fn: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def order(session: Annotated[str, Depends(session)], value: Annotated[str, Depends(fn)]) -> str:
        return value

    assert await play(server_of(order), Era.RETRY) == "value"
    (failed,) = failures(caplog)
    assert f"dependency {fn.__name__!r} failed while exiting" in failed
    assert "generator didn't stop" in failed
    assert [*OPENED, *CLOSED] == LOG


def never() -> Generator[str]:
    if LOG:
        return
    yield "never"


async def never_later() -> AsyncGenerator[str]:
    if LOG:
        return
    yield "never"


@pytest.mark.parametrize("fn", [never, never_later])
async def test_a_generator_that_does_not_yield_is_named(fn: Callable[..., Any]) -> None:
    def gone(session: str = Depends(session)) -> str:
        return session

    async def order(gone: Annotated[str, Depends(gone)], value: Annotated[str, Depends(fn)]) -> str:
        raise AssertionError("the body must not run")

    text = await play(server_of(order), Era.RETRY)
    assert text == (
        f"Error executing tool order: dependency {fn.__name__!r} is a generator that ended before it yielded; "
        "make it yield on every path"
    )
    assert ended_by("InvalidSignature") == LOG


async def test_a_broken_generator_leaves_the_connection_whole() -> None:
    """A `BaseException` that escaped would close it."""

    async def interrupts() -> AsyncGenerator[str]:
        try:
            yield "value"
        finally:
            raise BaseExceptionGroup("both", [GeneratorExit(), ValueError("no")])

    async def order(value: str = Depends(interrupts)) -> str:
        return value

    with anyio.fail_after(WAIT):
        user = User(server_of(order), era=Era.RETRY)
        assert (await user.call("order")).text == "value"
        assert (await user.call("order")).text == "value"


def swallows() -> Generator[str]:
    with contextlib.suppress(BaseException):
        yield "value"


@pytest.mark.parametrize("odd", [breaks, later(breaks), swallows, later(swallows)])
@pytest.mark.usefixtures("limits")
async def test_an_odd_exit_hides_no_end_of_the_call(odd: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    async def order(
        ctx: Context, then: str, session: Annotated[str, Depends(session)], value: Annotated[str, Depends(odd)]
    ) -> str:
        if then == "ask":
            return f"{value} {await ctx.ask('sure', 'Sure?', bool)}"
        if then == "hang":
            await hang()
        raise ValueError("no")

    async def play(then: str, answer: Any = True) -> tuple[str, list[str]]:
        LOG.clear()
        user = User(
            server_of(order, timeout=LIMIT), {"sure": answer}, era=Era.RETRY, allow_error=True, allow_unused=True
        )
        with anyio.fail_after(WAIT):
            call = await user.call("order", then=then)
        return (call.failure or call.text), [*LOG]

    assert await play("fail") == ("Error executing tool order: no", ended_by("ValueError"))
    assert await play("ask") == ("value True", [*ended_by("Suspension"), *OPENED, *CLOSED])
    declined, log = await play("ask", DECLINE)
    assert "The user declined" in declined
    assert log == [*ended_by("Suspension"), *ended_by("QuestionDeclined")]
    late, log = await play("hang")
    assert "timed out" in late
    assert log == ended_by("CancelledError")
    assert len(failures(caplog)) == (6 if odd.__name__.startswith("breaks") else 0)
