"""Calls that run for long, whose process is gone, or whose ledger is down."""

import logging
import threading
from collections import Counter
from contextlib import AsyncExitStack, suppress
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from roundtrip.ledger import ClaimAnswer, LedgerDown, MemoryLedger, lease
from roundtrip.ledger.machines import EntryState
from roundtrip.once import exactly_once
from roundtrip.system import SYSTEM, System
from roundtrip.testing import Clock, Duplicate, LegByLeg, User, served
from tests.interaction.ledger.shops import Shop, asked_to_buy, begun, text_of
from tests.kit.hosts import WAIT
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio

TEA: Any = {"what": "tea"}
YES: Any = {"paid": True}
TIMEOUT = 0.2
"""Seconds after which a body is cut short; if it had not even begun, its leg is sent again."""


class Failing(MemoryLedger):
    """Ledger whose chosen methods fail for now."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(system=System(time=clock) if clock is not None else SYSTEM)
        self.down: set[str] = set()
        self.asked = Counter[str]()
        self.heard = False
        """Whether it does what it is asked, and only cannot say so."""

    async def claim(self, *args: Any, **more: Any) -> ClaimAnswer:
        if "claim" not in self.down:
            return await super().claim(*args, **more)
        if self.heard:
            await super().claim(*args, **more)
        raise LedgerDown("the ledger of this test is down")

    async def renew(self, *args: Any, **more: Any) -> bool:
        held = await super().renew(*args, **more)
        self.asked["renew"] += 1
        return held

    async def until_renewed(self) -> None:
        """Wait for the next renewal of a claim."""
        seen = self.asked["renew"]
        await until(lambda: self.asked["renew"] > seen)

    async def settle(self, *args: Any, **more: Any) -> bool:
        self._check("settle")
        return await super().settle(*args, **more)

    async def release(self, *args: Any, **more: Any) -> None:
        self._check("release")
        await super().release(*args, **more)

    def _check(self, method: str) -> None:
        self.asked[method] += 1
        if method in self.down:
            raise LedgerDown("the ledger of this test is down")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> Failing:
    """Return a ledger whose leases end when the test turns its clock."""
    return Failing(clock)


@pytest.fixture
def shop(ledger: Failing) -> Shop:
    return Shop(ledger)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # What could not be written is written again after a pause.
    monkeypatch.setattr(exactly_once, "_FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let legs hear soon that another one still runs."""
    monkeypatch.setattr(exactly_once, "PATIENCE_SECONDS", 0.1)


async def reason_of(legs: LegByLeg, tool: str, *args: Any, **more: Any) -> tuple[int, Any]:
    with pytest.raises(MCPError) as caught:
        await legs.leg(tool, *args, **more, state=legs.token)
    data: Any = caught.value.error.data or {}
    return caught.value.error.code, data.get("reason")


async def test_unavailable_ledger_runs_nothing_and_keeps_the_token_valid(
    shop: Shop, ledger: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    legs = await asked_to_buy(shop)
    ledger.down.add("claim")
    assert await reason_of(legs, "buy", TEA, answers=YES) == (-32000, "ledger_unavailable")
    assert shop.ran == []
    assert "the ledger of this test is down" in caplog.text
    ledger.down.clear()
    bought = await legs.leg("buy", TEA, answers=YES, state=legs.token)
    assert (text_of(bought), shop.ran) == ("tea no. 1, paid", ["tea"])


async def test_a_claim_whose_answer_was_lost_is_taken_back(shop: Shop, ledger: Failing) -> None:
    legs = await asked_to_buy(shop)
    ledger.down.add("claim")
    ledger.heard = True
    assert (await reason_of(legs, "buy", TEA, answers=YES))[1] == "ledger_unavailable"
    ledger.down.clear()
    with anyio.fail_after(WAIT):
        bought = await legs.leg("buy", TEA, answers=YES, state=legs.token)
    assert (text_of(bought), shop.ran) == ("tea no. 1, paid", ["tea"])


async def test_claim_that_cannot_be_released_now_is_released_later(shop: Shop, ledger: Failing) -> None:
    legs = await asked_to_buy(shop)
    ledger.down.add("release")
    again = await legs.leg("buy", TEA, answers={"paid": "nonsense"}, state=legs.token)
    assert not hasattr(again, "content")
    ledger.down.clear()
    with anyio.fail_after(WAIT):
        bought = await legs.leg("buy", TEA, answers=YES, state=legs.token)
    assert (text_of(bought), shop.ran) == ("tea no. 1, paid", ["tea"])


@pytest.mark.usefixtures("impatient")
async def test_unstorable_result_reaches_its_client_and_is_unknown_later(
    shop: Shop, ledger: Failing, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    legs = await asked_to_buy(shop)
    ledger.down.add("settle")
    bought = await legs.leg("buy", TEA, answers=YES, state=legs.token)
    assert text_of(bought) == "tea no. 1, paid"
    assert "tool 'buy' could not save its result" in caplog.text
    assert (await reason_of(legs, "buy", TEA, answers=YES))[1] == "still_running"
    clock.advance(lease.LEASE_SECONDS + 1)
    again = await legs.leg("buy", TEA, answers=YES, state=legs.token)
    assert "the outcome of this call is unknown" in text_of(again)
    assert shop.ran == ["tea"]


@pytest.mark.parametrize("lapsed", [False, True])
async def test_temporarily_unstorable_result_is_stored_later(
    shop: Shop, ledger: Failing, clock: Clock, lapsed: bool
) -> None:
    """The result is stored even if the process counted as dead, because it could not renew its lease."""
    legs = await asked_to_buy(shop)
    ledger.down.add("settle")
    await legs.leg("buy", TEA, answers=YES, state=legs.token)
    if lapsed:
        clock.advance(lease.LEASE_SECONDS + 1)
        assert "unknown" in text_of(await legs.leg("buy", TEA, answers=YES, state=legs.token))
    ledger.down.clear()
    await until_kept(ledger)
    again = await legs.leg("buy", TEA, answers=YES, state=legs.token)
    assert (text_of(again), shop.ran) == ("tea no. 1, paid", ["tea"])


async def until_kept(ledger: MemoryLedger) -> None:
    entries: dict[str, Any] = ledger._entries  # pyright: ignore[reportPrivateUsage]
    await until(lambda: all(one.state is EntryState.SETTLED for one in entries.values()))


async def test_oversized_result_reaches_its_client_and_is_unknown_later(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exactly_once, "MAX_RESULT_CHARS", 40)
    legs = await asked_to_buy(shop)
    assert text_of(await legs.leg("buy", TEA, answers=YES, state=legs.token)) == "tea no. 1, paid"
    assert "unknown" in text_of(await legs.leg("buy", TEA, answers=YES, state=legs.token))
    assert shop.ran == ["tea"]
    assert "must have at most" in caplog.text


async def test_unrecordable_error_still_ends_its_call(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> str:
        shop.ran.append("fail")
        raise MCPError(code=INVALID_PARAMS, message="no", data={"at": object()})

    legs = await begun(shop, fail)
    with pytest.raises(MCPError):
        await legs.leg("fail", state=legs.token)
    assert "unknown" in text_of(await legs.leg("fail", state=legs.token))
    assert shop.ran == ["fail"]
    assert "tool 'fail' could not save its error" in caplog.text


class Held:
    """Body that begins, and continues when the test lets it."""

    def __init__(self, shop: Shop) -> None:
        self.begun = anyio.Event()
        self.go_on = anyio.Event()
        self.results: list[str] = []
        self._shop = shop

    async def begin(self) -> LegByLeg:
        """Start a call of this body."""
        self.legs = await begun(self._shop, self.hold)
        return self.legs

    async def send(self) -> None:
        """Send a leg that runs the body, or waits for it, and keep its result."""
        self.results.append(text_of(await self.legs.leg("hold", state=self.legs.token)))

    async def hold(self) -> str:
        self._shop.ran.append("hold")
        self.begun.set()
        await self.go_on.wait()
        return f"held {len(self._shop.ran)}"


async def test_concurrent_caller_waits_and_gets_the_same_result(shop: Shop) -> None:
    held = Held(shop)
    await held.begin()
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(held.send)
            await held.begun.wait()
            for _ in range(4):
                group.start_soon(held.send)
            await anyio.wait_all_tasks_blocked()
            held.go_on.set()
    assert (held.results, shop.ran) == (["held 1"] * 5, ["hold"])


@pytest.mark.usefixtures("impatient")
async def test_body_may_outlive_its_lease_and_waiters_learn_it(
    shop: Shop, ledger: Failing, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.3)
    held = Held(shop)
    legs = await held.begin()
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(held.send)
            await held.begun.wait()
            for _ in range(3):
                await ledger.until_renewed()
                clock.advance(0.2)
                assert await reason_of(legs, "hold") == (-32000, "still_running")
            held.go_on.set()
    assert text_of(await legs.leg("hold", state=legs.token)) == "held 1"
    assert (held.results, shop.ran) == (["held 1"], ["hold"])


async def until_timed_out(legs: LegByLeg, tool: str, shop: Shop) -> None:
    """Send a leg until its body has begun, and was cut short."""
    with anyio.fail_after(WAIT):
        while not shop.ran:
            assert (await reason_of(legs, tool))[1] == "tool_timeout"


@pytest.mark.parametrize("in_thread", [False, True])
async def test_interrupted_body_is_unknown_and_not_repeated(shop: Shop, in_thread: bool) -> None:
    go_on = threading.Event()

    def slow() -> str:
        shop.ran.append("slow")
        assert go_on.wait(WAIT)
        return "slow"

    body = slow if in_thread else Held(shop).hold
    legs = await begun(shop, body, timeout=TIMEOUT)
    try:
        await until_timed_out(legs, body.__name__, shop)
    finally:
        go_on.set()
    told = await legs.leg(body.__name__, state=legs.token)
    assert "the outcome of this call is unknown" in text_of(told)
    assert getattr(told, "is_error", False)
    assert len(shop.ran) == 1


@pytest.mark.parametrize("over", ["memory", "http"])
async def test_begun_body_finishes_although_its_client_leaves(shop: Shop, over: str) -> None:
    held = Held(shop)
    shop.add(held.hold)
    server = shop()
    async with AsyncExitStack() as stack:
        legs = LegByLeg(server if over == "memory" else await stack.enter_async_context(served(server)))
        await legs.leg("hold")

        async def send() -> None:
            # In memory the result comes back all the same, to a connection that is closed.
            with suppress(MCPError):
                await legs.leg("hold", state=legs.token)

        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as group:
                group.start_soon(send)
                await held.begun.wait()
                group.cancel_scope.cancel()
                if over == "memory":
                    # Its server leaves with it, and has to wait.
                    held.go_on.set()
            held.go_on.set()
            assert text_of(await legs.leg("hold", state=legs.token)) == "held 1"
    assert shop.ran == ["hold"]


async def test_protocol_error_is_stored_as_one(shop: Shop) -> None:
    async def fail() -> str:
        shop.ran.append("fail")
        raise MCPError(code=INVALID_PARAMS, message=f"no. {len(shop.ran)}", data={"reason": "mine", "at": [1, None]})

    legs = await begun(shop, fail)
    seen: list[Any] = []
    for _ in range(2):
        with pytest.raises(MCPError) as caught:
            await legs.leg("fail", state=legs.token)
        seen.append(caught.value.error)
    assert seen[0] == seen[1]
    assert (seen[0].code, seen[0].message, seen[0].data) == (
        INVALID_PARAMS,
        "no. 1",
        {"reason": "mine", "at": [1, None]},
    )


async def test_the_log_of_a_recalled_call_is_quiet(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await User(shop, YES, network=[Duplicate()]).call("buy", TEA)
    assert caplog.records == []
