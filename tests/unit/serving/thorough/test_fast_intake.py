"""The limits of connections again, with httptools in place of h11."""

from typing import Final

import anyio
import pytest

from roundtrip.serving.fast_connection import FastConnection
from tests.kit.waiting import WAIT
from tests.unit.serving.test_intake import (
    CALL,
    closed,
    serving,
    test_bytes_that_drip_in_buy_no_time,
    test_connection_may_be_busy_or_idle_but_not_half_sent,
    test_connection_whose_request_does_not_arrive_is_closed,
    test_half_sent_requests_make_room_for_whole_ones,
    test_headers_behind_the_body_are_not_headers,
    test_health_is_answered_while_every_connection_is_served,
    test_requests_sent_ahead_are_answered_in_their_order,
    test_response_that_is_not_read_ends,
    test_what_a_request_has_beside_its_body_is_bounded,
)

__all__ = [
    "test_bytes_that_drip_in_buy_no_time",
    "test_connection_may_be_busy_or_idle_but_not_half_sent",
    "test_connection_whose_request_does_not_arrive_is_closed",
    "test_half_sent_requests_make_room_for_whole_ones",
    "test_headers_behind_the_body_are_not_headers",
    "test_health_is_answered_while_every_connection_is_served",
    "test_requests_sent_ahead_are_answered_in_their_order",
    "test_response_that_is_not_read_ends",
    "test_what_a_request_has_beside_its_body_is_bounded",
]

pytestmark = pytest.mark.anyio
AHEAD: Final = 100


@pytest.fixture(autouse=True)
def parser(monkeypatch: pytest.MonkeyPatch) -> str:
    """Read requests with httptools, and fail if they are read with anything else."""
    del monkeypatch
    return "httptools"


async def test_httptools_reads_the_requests() -> None:
    async with serving() as place:
        assert getattr(place.bounds.protocol, "func", None) is FastConnection


async def test_requests_sent_ahead_are_bounded() -> None:
    async with serving() as place:
        stream = await place.connect((CALL + b"body") * AHEAD)
        await closed(stream)
        assert place.app.begun <= 1


async def test_empty_lines_buy_no_time() -> None:
    async with serving(seconds=0.3) as place:
        stream = await place.connect()

        async def drip() -> None:
            while True:
                await stream.send(b"\r\n")
                with anyio.move_on_after(0.02):
                    await stream.receive()

        with anyio.fail_after(WAIT), pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
            await drip()
