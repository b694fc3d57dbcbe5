"""Work that times out while another cause ends it too, and limits that cannot be."""

import math
import re
from typing import Any

import anyio
import pytest

from roundtrip import Server
from roundtrip.engine.interruptions import with_timeout
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

SHORT = 0.02


async def ends_with(error: BaseException) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise error


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


def test_invalid_timeout_is_rejected_with_its_argument_name() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ttl": "10"}, "ttl= must be a number of seconds, got '10'"),
        ({"max_age": (60,)}, "max_age= must be a number of seconds, got (60,)"),
        ({"ttl": True}, "ttl= must be a number of seconds, got True"),
        ({"ttl": 0}, "ttl=0 and max_age=3600.0"),
        ({"ttl": math.nan}, "ttl=nan and max_age=3600.0"),
        ({"ttl": 10, "max_age": 5}, "with 0 < ttl <= max_age"),
        ({"max_age": math.inf}, "finite numbers of seconds"),
    ]
    for options, told in wrong:
        with pytest.raises(ValueError, match=re.escape(told)):
            Server("limits", **options)
