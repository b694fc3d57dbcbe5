"""One-use addresses of the pages of a machine: their times, and the times of their calls."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from itertools import count
from typing import Any

import anyio
import httpx
import pytest

from roundtrip.channels.local.local_site import LocalSite
from roundtrip.pages.calls import ClosedPage, PageState
from roundtrip.pages.settings import PageLook
from roundtrip.testing import Clock

pytestmark = pytest.mark.anyio
TICKET = "call-1.0123456789abcdef"
OTHER = "call-2.0123456789abcdef"


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.now = 0.0
    return clock


class NoCalls:
    async def open(self, ticket: str, subject: str | None) -> PageState:
        return ClosedPage()

    async def answer(
        self, ticket: str, subject: str | None, round_id: str, answers: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        return False

    def changes(self, ticket: str) -> AbstractContextManager[Callable[[], Awaitable[None]]]:
        return nullcontext(anyio.sleep_forever)


@asynccontextmanager
async def site_at(clock: Clock) -> AsyncGenerator[LocalSite]:
    numbers = count(1)
    secrets = (f"secret-{number}" for number in numbers)
    site = LocalSite(NoCalls(), clock=clock, new_secret=lambda: next(secrets), keys=[b"k" * 32], look=PageLook("Shop"))
    await site.start()
    try:
        yield site
    finally:
        await site.close()


async def status_of(address: str | None) -> int:
    assert address is not None
    async with httpx.AsyncClient() as http:
        return (await http.get(address)).status_code


async def test_page_is_opened_once_unless_its_call_is_repeated_later(clock: Clock) -> None:
    async with site_at(clock) as site:
        first = site.address_for(TICKET, 1000.0)
        assert first is not None
        assert site.address_for(TICKET, 1000.0) is None
        assert site.address_for(TICKET, 1000.0, is_repeated=True) is None
        assert site.address_for(OTHER, 1000.0) not in (None, first)
        clock.now = 31.0
        assert site.address_for(TICKET, 1000.0) is None
        again = site.address_for(TICKET, 1000.0, is_repeated=True)
        # Only the newest address works, and an older one takes nothing away.
        assert (await status_of(first), await status_of(again)) == (404, 303)
        assert site.was_opened(TICKET)
        assert not site.was_opened(OTHER)


async def test_address_that_no_browser_used_in_time_is_void(clock: Clock) -> None:
    async with site_at(clock) as site:
        address = site.address_for(TICKET, 10_000.0)
        clock.now = 301.0
        assert await status_of(address) == 404
        assert not site.was_opened(TICKET)
        assert await status_of(site.address_for(TICKET, 10_000.0, is_repeated=True)) == 303


async def test_address_ends_with_its_call(clock: Clock) -> None:
    async with site_at(clock) as site:
        address = site.address_for(TICKET, 60.0)
        assert await status_of(address) == 303
        clock.now = 60.0
        site.address_for(OTHER, 1000.0)
        assert not site.was_opened(TICKET)
        assert await status_of(address) == 404
