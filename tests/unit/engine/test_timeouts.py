"""Work that times out while another cause ends it too."""

import anyio
import anyio.lowlevel
import pytest

from roundtrip.engine.interruptions import Suspension, clock_paused, with_timeout
from roundtrip.errors import ToolTimedOut
from tests.kit.time_limits import limits_held
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

SHORT = 0.02


async def ends_with(error: BaseException) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise error


async def test_exception_within_the_time_limit_propagates() -> None:
    async def work() -> None:
        raise error

    for error in (ValueError("crash"), Suspension(), BaseExceptionGroup("both", [Suspension()])):
        with pytest.raises(type(error)) as caught:
            await with_timeout(WAIT, work())
        assert caught.value is error


@pytest.mark.parametrize("error", [ValueError("crash"), Suspension(), BaseExceptionGroup("both", [Suspension()])])
async def test_overdue_work_has_timed_out_for_any_ending(error: BaseException) -> None:
    with anyio.fail_after(WAIT), pytest.raises(ToolTimedOut, match=r"timed out after 0\.02s") as caught:
        await with_timeout(SHORT, ends_with(error))
    assert caught.value.seconds == SHORT
    assert caught.value.__cause__ is (error if isinstance(error, Exception) else None)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), BaseExceptionGroup("both", [KeyboardInterrupt()])])
async def test_an_interrupt_is_not_lost_in_a_timeout(interrupt: BaseException) -> None:
    caught: BaseException | None = None
    with anyio.fail_after(WAIT):
        try:
            await with_timeout(SHORT, ends_with(interrupt))
        except BaseException as error:  # noqa: BLE001 - it is what is looked at
            caught = error
    assert caught is interrupt


@pytest.mark.parametrize("error", [None, ValueError("crash")])
async def test_outside_cancellation_stays_one_despite_a_timeout(error: Exception | None) -> None:
    raised: list[BaseException] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            # The time was up; now the client has gone as well.
            outside.cancel()
            if error is not None:
                raise error

    with anyio.fail_after(WAIT), anyio.CancelScope() as outside:
        try:
            await with_timeout(SHORT, work())
        except BaseException as seen:
            raised.append(seen)
            raise
    assert outside.cancelled_caught
    assert [type(seen) for seen in raised] == [anyio.get_cancelled_exc_class()]


async def test_clock_stops_until_all_questions_are_answered() -> None:
    async def ask(answered: anyio.Event) -> None:
        with clock_paused():
            await answered.wait()

    async def work() -> str:
        first, second = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(ask, first)
            group.start_soon(ask, second)
            await anyio.lowlevel.checkpoint()
            first.set()
            await anyio.lowlevel.checkpoint()
            limits.expire()
            await anyio.lowlevel.checkpoint()
            second.set()
        return "done"

    with limits_held() as limits:
        assert await with_timeout(SHORT, work()) == "done"
    assert limits.seconds == [SHORT] * 2
