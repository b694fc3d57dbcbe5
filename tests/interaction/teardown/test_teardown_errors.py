"""Errors of teardown are logged, and hide neither an error nor a question nor a success."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Annotated, Any

import anyio
import pytest

from roundtrip import Context, Depends, Event, Resolve
from roundtrip.testing import DECLINE, Era, Steps, User
from tests.interaction.teardown.held import (
    CLOSED,
    LOG,
    OPENED,
    ended_by,
    failures,
    play,
    server_of,
    session,
    sure,
)
from tests.kit.hosts import WAIT
from tests.kit.time_limits import LIMIT, hang

pytestmark = pytest.mark.anyio


async def breaks() -> AsyncGenerator[str]:
    try:
        yield "value"
    finally:
        raise LookupError("broken")


async def test_exit_error_is_logged_and_the_call_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    async def order(session: str = Depends(session), value: str = Depends(breaks)) -> str:
        return value

    assert await play(server_of(order), Era.RETRY) == "value"
    assert failures(caplog) == ["dependency 'breaks' failed on exit; its call is not affected: LookupError('broken')"]
    # The others are left as if it had not happened.
    assert [*OPENED, *CLOSED] == LOG


async def test_exit_error_does_not_hide_the_call_error(caplog: pytest.LogCaptureFixture) -> None:
    async def order(session: str = Depends(session), value: str = Depends(breaks)) -> str:
        raise ValueError("no")

    assert await play(server_of(order), Era.RETRY) == "Error executing tool order: no"
    assert len(failures(caplog)) == 1
    assert ended_by("ValueError") == LOG


async def test_exit_error_does_not_hide_a_question(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    async def order(ctx: Context, session: str = Depends(session), value: str = Depends(breaks)) -> str:
        return f"{value} {await ctx.ask('sure', 'Sure?', bool)}"

    assert await play(server_of(order), era, {"sure": True}) == "value True"
    retried = ended_by("Suspension") if era is Era.RETRY else []
    assert [*retried, *OPENED, *CLOSED] == LOG
    assert len(failures(caplog)) == (2 if era is Era.RETRY else 1)


@pytest.mark.usefixtures("limits")
async def test_exit_error_does_not_hide_a_timeout(caplog: pytest.LogCaptureFixture) -> None:
    async def order(session: str = Depends(session), value: str = Depends(breaks)) -> str:
        await hang()
        return "never"

    assert "timed out" in await play(server_of(order, timeout=LIMIT), Era.RETRY)
    assert ended_by("CancelledError") == LOG
    assert len(failures(caplog)) == 1


def swallows() -> Generator[str]:
    with contextlib.suppress(BaseException):
        yield "value"
    LOG.append("swallowed")


async def swallows_later() -> AsyncGenerator[str]:
    with contextlib.suppress(BaseException):
        yield "value"
    LOG.append("swallowed")


@pytest.mark.parametrize("swallows", [swallows, swallows_later])
async def test_swallowed_error_does_not_become_a_success(swallows: Callable[..., Any]) -> None:
    async def order(session: Annotated[str, Depends(session)], value: Annotated[str, Depends(swallows)]) -> str:
        raise ValueError("no")

    assert await play(server_of(order), Era.RETRY) == "Error executing tool order: no"
    assert [*OPENED, "swallowed", "session: ValueError", "connection: ValueError"] == LOG


async def test_swallowed_suspension_does_not_end_the_call(era: Era) -> None:
    async def order(ctx: Context, value: Annotated[str, Depends(swallows_later)]) -> str:
        return f"{value} {await ctx.ask('sure', 'Sure?', bool)}"

    assert await play(server_of(order), era, {"sure": True}) == "value True"
    assert ["swallowed"] * (2 if era is Era.RETRY else 1) == LOG


async def test_swallowed_decline_does_not_become_a_success() -> None:
    trace = Steps()

    async def order(certain: Annotated[bool, Resolve(sure)], value: Annotated[str, Depends(swallows)]) -> str:
        raise AssertionError("the body must not run")

    assert "elicitation was decline" in await play(server_of(order, trace=trace), Era.RETRY, {"sure": DECLINE})
    assert trace.events[-1] is Event.DECLINE


@pytest.mark.usefixtures("limits")
async def test_swallowed_timeout_does_not_continue_the_call() -> None:
    async def order(session: Annotated[str, Depends(session)], value: Annotated[str, Depends(swallows_later)]) -> str:
        await hang()
        return "never"

    assert "timed out" in await play(server_of(order, timeout=LIMIT), Era.RETRY)
    assert [*OPENED, "swallowed", "session: CancelledError", "connection: CancelledError"] == LOG


def twice() -> Generator[str]:
    yield "value"
    yield "again"


async def twice_later() -> AsyncGenerator[str]:
    yield "value"
    yield "again"


def insists() -> Generator[str]:
    with contextlib.suppress(Exception):
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
    assert f"dependency {fn.__name__!r} failed on exit" in failed
    assert "generator didn't stop" in failed
    assert [*OPENED, *CLOSED] == LOG


async def test_generator_yielding_again_at_an_error_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def order(value: str = Depends(insists)) -> str:
        raise ValueError("no")

    assert await play(server_of(order), Era.RETRY) == "Error executing tool order: no"
    (failed,) = failures(caplog)
    assert "generator didn't stop after throw()" in failed


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
        "have it yield on every path"
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
