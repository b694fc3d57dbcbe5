"""Legs that wait for a page: each waits for the declared time, and then asks again."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp_types import ElicitResult

from roundtrip import ElicitUrl, Server
from roundtrip.engine import rounds
from roundtrip.testing import Era, LegByLeg, Steps
from tests.interaction.pages.ways import BOOK, URL, places, ways
from tests.kit.hosts import WAIT
from tests.kit.players import text_of
from tests.kit.secrets import NEW
from tests.kit.visitors import Visitor, add_export, visiting

pytestmark = pytest.mark.anyio
AGREED = ElicitResult(action="accept")


def exporting(place: str, done: Callable[..., Any], *, wait: float, trace: Steps | None = None) -> Server[Any]:
    server = Server[Any]("shop", keys=[NEW], trace=trace)
    return add_export(server, place, lambda ctx: ElicitUrl("Log in.", URL, done=done, wait=wait))


@ways
async def test_waiting_leg_asks_once_and_notices_the_finished_page(place: str, era: Era) -> None:
    looked, finished = anyio.Event(), anyio.Event()

    async def done() -> str | None:
        looked.set()
        return "ada" if finished.is_set() else None

    async def page() -> None:
        # The user takes longer than the leg's first look.
        await looked.wait()
        finished.set()

    visitor = Visitor()
    with anyio.fail_after(WAIT):
        async with (
            visiting(exporting(place, done, wait=WAIT), era, visitor) as client,
            anyio.create_task_group() as web,
        ):
            web.start_soon(page)
            assert text_of(await client.call_tool("export", BOOK)) == "Dune for ada"
    assert visitor.urls == [URL]


@pytest.mark.parametrize(
    ("place", "era", "wait", "unfinished"),
    [("resolver", Era.LIVE, 0, None), ("body", Era.RETRY, 0, False), ("body", Era.LIVE, 0.05, None)],
)
async def test_leg_waits_only_its_configured_time_before_asking_again(
    place: str, era: Era, wait: float, unfinished: Any
) -> None:
    visits: list[str] = []

    async def done() -> Any:
        return "ada" if len(visits) == 2 else unfinished

    trace = Steps()
    visitor = Visitor(visit=lambda page: visits.append(page.url))
    with anyio.fail_after(WAIT):
        async with visiting(exporting(place, done, wait=wait, trace=trace), era, visitor) as client:
            assert text_of(await client.call_tool("export", BOOK)) == "Dune for ada"
    assert visitor.urls == [URL, URL]
    assert trace.asked == [{"login": "new"}, {"login": "unfinished"}]


async def test_look_that_hangs_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_DONE_SECONDS", 0.05)
    hopper = LegByLeg(lambda: exporting("body", anyio.sleep_forever, wait=0))
    await hopper.leg("export", BOOK)
    with anyio.fail_after(WAIT):
        await hopper.leg("export", BOOK, answers={"login": AGREED}, state=hopper.token)
    assert list(hopper.questions) == ["login"]


@places
async def test_unanswered_page_is_shown_again_without_waiting(place: str) -> None:
    """Shows S7."""
    looked: list[str] = []

    async def done() -> str | None:
        looked.append("looked")
        return None

    trace = Steps()
    hopper = LegByLeg([exporting(place, done, wait=WAIT, trace=trace)])
    await hopper.leg("export", BOOK)
    await hopper.leg("export", BOOK, answers={}, state=hopper.token)
    assert list(hopper.questions) == ["login"]
    assert looked == []
    assert trace.asked == [{"login": "new"}, {"login": "missing"}]


async def test_unfinished_page_ends_with_the_patience_of_the_client(era: Era) -> None:
    """Shows S10."""
    visitor = Visitor(*["accept"] * 4, "cancel")
    with anyio.fail_after(WAIT):
        async with visiting(exporting("body", lambda: False, wait=0), era, visitor) as client:
            result = await client.call_tool("export", BOOK)
    assert result.is_error
    assert len(visitor.pages) == 5


def test_a_negative_wait_is_rejected_where_it_is_written() -> None:
    for wait in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="wait="):
            ElicitUrl("Log in.", URL, wait=wait)
