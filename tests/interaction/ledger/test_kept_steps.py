"""Steps and failures of tools that run once: kept for their leg and revision, and logged in full once."""

import logging
import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageResult, TextContent
from pydantic import BaseModel

from roundtrip import Context, ElicitUrl
from roundtrip.ledger import MemoryLedger, lease
from roundtrip.once import exactly_once
from roundtrip.testing import LegByLeg
from tests.interaction.ledger.shops import Shop, begun, cut_short, text_of
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


class City(BaseModel):
    city: str


class Trips:
    """Trips that are reviewed before they are booked, in a process that dies after the review."""

    def __init__(self) -> None:
        self.fares: list[str] = []
        self.dies, self.reviewed = True, anyio.Event()
        self.shop = Shop(MemoryLedger())
        self.shop.add(self.book, on_unknown="rerun")

    async def fare_to(self, city: str) -> str:
        self.fares.append(city)
        return f"fare no. {len(self.fares)} to {city}"

    async def book(self, ctx: Context[Any, Any]) -> str:
        """Book a trip."""
        chosen = await ctx.ask("city", "Where to?", City)
        fare = await ctx.step("fare", self.fare_to, chosen.city)
        await ctx.review("review", "All right?", ["city"])
        if self.dies:
            self.reviewed.set()
            await anyio.sleep_forever()
        return fare


@pytest.mark.usefixtures("brief_shield")
async def test_step_after_a_changed_answer_is_not_repeated() -> None:
    trips = Trips()
    legs = LegByLeg(trips.shop)
    await legs.leg("book")
    await legs.leg("book", state=legs.token)
    await legs.leg("book", answers={"city": {"city": "Rome"}}, state=legs.token)
    changed: Any = {"review": {"city.city": "Oslo"}}
    await cut_short(legs, "book", trips.reviewed, answers=changed)
    assert trips.fares == ["Rome", "Oslo"]
    trips.dies = False
    booked = await legs.leg("book", answers=changed, state=legs.token)
    assert (text_of(booked), trips.fares) == ("fare no. 2 to Oslo", ["Rome", "Oslo"])


class Paused:
    """Body whose process is paused, while another instance takes its call over and ends it."""

    def __init__(self, then: str) -> None:
        self.begun: list[int] = []
        self.charged: list[int] = []
        self.went_on: list[int] = []
        self._then = then
        self._paused = threading.Event()
        self._resumed = threading.Event()
        self.shop = Shop(MemoryLedger())
        self.shop.add(self.pay, on_unknown="rerun")
        self.legs = LegByLeg(self.shop)

    async def charge(self, number: int) -> int:
        self.charged.append(number)
        return number

    async def pay(self, ctx: Context[Any, Any]) -> str:
        """Pay."""
        number = len(self.begun) + 1
        self.begun.append(number)
        if number == 1:
            self._paused.set()
            # All of this process stands still: its event loop, and with it what says that it is alive.
            self._resumed.wait(WAIT)
            if self._then == "waits":
                await anyio.sleep(WAIT)
                self.went_on.append(number)
        return f"charged by {await ctx.step('charge', self.charge, number)}"

    def take_over(self) -> str:
        """Send the leg again, as another process does, until it is served."""

        async def until_served() -> str:
            with anyio.fail_after(WAIT):
                while True:
                    try:
                        return text_of(await self.legs.leg("pay", state=self.legs.token))
                    except MCPError as error:
                        data: Any = error.error.data
                        assert data["reason"] == "still_running"

        assert self._paused.wait(WAIT)
        try:
            return anyio.run(until_served)
        finally:
            self._resumed.set()


@pytest.mark.parametrize("then", ["steps", "waits"])
async def test_a_body_that_was_paused_and_taken_over_stops(then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(exactly_once, "PATIENCE_SECONDS", 0.2)
    paused = Paused(then)
    await paused.legs.leg("pay")
    served: list[str] = []

    async def take_over() -> None:
        served.append(await anyio.to_thread.run_sync(paused.take_over))

    told: list[Any] = []
    with anyio.fail_after(WAIT * 2):
        async with anyio.create_task_group() as group:
            group.start_soon(take_over)
            with pytest.raises(MCPError, match="was stopped, because its process was silent for too long") as stopped:
                await paused.legs.leg("pay", state=paused.legs.token)
            told.append(stopped.value.error.data)
    assert told == [{"reason": "still_running", "tool": "pay"}]
    assert (paused.begun, paused.charged, paused.went_on) == ([1, 2], [2], [])
    again = await paused.legs.leg("pay", state=paused.legs.token)
    assert [*served, text_of(again)] == ["charged by 2"] * 2


async def test_a_body_goes_on_whose_entry_the_ledger_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it were stopped, the next leg would run it again."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
    ledger = MemoryLedger()
    shop = Shop(ledger)
    steps: list[str] = []

    async def take(name: str) -> str:
        steps.append(name)
        return name

    async def work(ctx: Context[Any, Any]) -> str:
        entries: dict[str, Any] = ledger._entries  # pyright: ignore[reportPrivateUsage]
        entries.clear()
        first = await ctx.step("first", take, "first")
        entries.clear()
        return f"{first} {await ctx.step('second', take, 'second')}"

    legs = await begun(shop, work)
    done = [text_of(await legs.leg("work", state=legs.token)) for _ in range(2)]
    assert (done, steps) == (["first second"] * 2, ["first", "second"])


WRONG_KIND = CreateMessageResult(role="assistant", content=TextContent(type="text", text="yes"), model="m")


@pytest.fixture
def shop() -> Shop:
    return Shop(MemoryLedger())


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


async def test_a_recalled_crash_is_logged_in_one_line(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    async def give() -> str:
        raise ValueError("dropped")

    legs = await begun(shop, give)
    caplog.set_level(logging.INFO, logger="mcp.server.mcpserver.server")
    told = [text_of(await legs.leg("give", state=legs.token)) for _ in range(4)]
    assert told == ["Error executing tool give: dropped"] * 4
    assert errors_in(caplog) == ["Tool 'give' raised an unexpected exception"]
    again = [record.getMessage() for record in caplog.records if "recorded error" in record.getMessage()]
    assert again == ["Tool 'give' returned the recorded error from an earlier run"] * 3


@pytest.mark.parametrize("asks", ["form", "page"])
async def test_answer_of_another_kind_ends_no_call_and_logs_nothing(
    shop: Shop, asks: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def done() -> bool:
        return True

    async def order(ctx: Context[Any, Any]) -> str:
        if asks == "form":
            await ctx.ask("sure", "Sure?", bool)
        else:
            await ctx.ask("sure", ElicitUrl("Sign in", "https://example.com/in", done=done))
        shop.ran.append("order")
        return "ordered"

    legs = await begun(shop, order)
    await legs.leg("order", state=legs.token)
    asked = legs.token
    token = asked
    for _ in range(5):
        await legs.leg("order", answers={"sure": WRONG_KIND}, state=token)
        token = legs.token
    right: Any = True if asks == "form" else {}
    ended = await legs.leg("order", answers={"sure": right}, state=asked)
    again = await legs.leg("order", answers={"sure": right}, state=asked)
    assert [text_of(ended), text_of(again), shop.ran] == ["ordered", "ordered", ["order"]]
    assert errors_in(caplog) == []
