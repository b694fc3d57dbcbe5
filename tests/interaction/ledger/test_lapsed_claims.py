"""Legs that are lost, suspended, or lose their claim, before their body begins or while no other leg claims it."""

import asyncio
import itertools
from typing import Annotated, Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from roundtrip import Context, Elicit, Resolve
from roundtrip.engine import outcomes
from roundtrip.engine.leg import Finished
from roundtrip.engine.outcomes import record_outcome
from roundtrip.errors import CallTakenOver, OutcomeUnknown
from roundtrip.ledger import ClaimAnswer, ClaimStatus, LedgerDown, MemoryLedger, lease
from roundtrip.ledger.lease import LEASE_SECONDS
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import State
from roundtrip.once import exactly_once
from roundtrip.once.exactly_once import LedgerClaim
from roundtrip.system import System
from roundtrip.testing import Clock, LegByLeg
from tests.interaction.ledger.shops import Shop, begun, text_of
from tests.kit.secrets import journal
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


class LateClaims(MemoryLedger):
    """Ledger whose claims are on their way until `arrives`, even if their sender is cancelled meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.arrives = anyio.Event(), anyio.Event()

    async def claim(self, *values: Any, **options: Any) -> ClaimAnswer:
        async def arrive() -> ClaimAnswer:
            self.sent.set()
            await self.arrives.wait()
            return await super(LateClaims, self).claim(*values, **options)

        return await asyncio.shield(asyncio.create_task(arrive()))


@pytest.mark.parametrize("at_once", [True, False])
async def test_cancelled_leg_releases_a_claim_that_is_granted_later(at_once: bool) -> None:
    """Otherwise the outcome would be unknown after the lease, although the body never began."""
    ledger = LateClaims()
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            claim = LedgerClaim(ledger, "call", "pay", 3600.0)
            group.start_soon(lambda: claim.begin("", at_once=at_once, remember=lambda: Journal("call", 0, 0, 0, 1, 0)))
            await ledger.sent.wait()
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
                ledger.arrives.set()
        entry = await ledger.claim("call", "", holder="other", lease=30.0, keep=3600.0)
    assert entry.status is ClaimStatus.GRANTED


async def test_body_does_not_begin_after_another_leg_ran_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process was stopped between its claim and its body, for longer than the lease."""
    clock = Clock()
    ledger = MemoryLedger(system=System(time=clock))
    stopped, other = (LedgerClaim(ledger, "call", "pay", 3600.0, "rerun") for _ in range(2))
    await stopped.begin("", at_once=True, remember=lambda: Journal("call", 0, 0, 0, 1, 0))
    clock.advance(LEASE_SECONDS + 1)
    await other.begin("", at_once=True, remember=lambda: Journal("call", 0, 0, 0, 1, 0))
    await other.start_body()
    await other.record(CallToolResult(content=[]))
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
    with pytest.raises(CallTakenOver):
        await stopped.start_body()
    stopped.close()


class SlowRenewals(MemoryLedger):
    """Ledger whose first renewal is on its way until `arrives`."""

    def __init__(self, system: System) -> None:
        super().__init__(system=system)
        self.sent, self.arrives = anyio.Event(), anyio.Event()

    async def renew(self, key: str, *, holder: str, epoch: int, lease: float) -> bool:
        if not self.sent.is_set():
            self.sent.set()
            await self.arrives.wait()
        return await super().renew(key, holder=holder, epoch=epoch, lease=lease)


async def test_renewal_with_the_epoch_of_an_earlier_claim_does_not_end_the_leg() -> None:
    clock = Clock()
    ledger = SlowRenewals(System(time=clock))
    claim = LedgerClaim(ledger, "call", "pay", keep=3600.0)
    await claim.begin("the answers", at_once=False, remember=journal)
    clock.advance(LEASE_SECONDS + 1)
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(claim.renew)
            await ledger.sent.wait()
            await claim.start_body()
            clock.advance(LEASE_SECONDS + 1)
            ledger.arrives.set()
    await claim.require_held()
    await claim.release()


async def test_body_that_was_stopped_in_the_middle_does_not_begin_again() -> None:
    clock = Clock()
    ledger = MemoryLedger(system=System(time=clock))
    claim = LedgerClaim(ledger, "call", "pay", keep=3600.0)
    await claim.begin("the answers", at_once=False, remember=journal)

    async def work() -> Finished:
        await claim.start_body()
        call.state = State.EXECUTING
        clock.advance(LEASE_SECONDS + 1)
        raise CallTakenOver("tool 'pay'")

    call = Call("call", state=State.RESOLVING)
    with pytest.raises(CallTakenOver):
        await record_outcome(claim, call, claim.hold(work()), computed=tuple)
    with pytest.raises(OutcomeUnknown):
        await LedgerClaim(ledger, "call", "pay", keep=3600.0).begin("the answers", at_once=False, remember=journal)


async def test_step_beside_a_question_does_not_hold_the_call_of_its_user() -> None:
    shop = Shop(MemoryLedger())
    leg_ended, ended = anyio.Event(), anyio.Event()

    async def weigh() -> int:
        await leg_ended.wait()
        ended.set()
        return 3

    async def send(ctx: Context[Any, Any]) -> str:
        weight, sure = await asyncio.gather(ctx.step("weight", weigh), ctx.ask("sure", "Sure?", bool))
        return f"sent {weight}, {sure}"

    legs = await begun(shop, send)
    await legs.leg("send", state=legs.token)
    leg_ended.set()
    with anyio.fail_after(WAIT):
        await ended.wait()
    await anyio.wait_all_tasks_blocked()
    assert text_of(await legs.leg("send", answers={"sure": {"value": True}}, state=legs.token)) == "sent 3, True"


class SlowClaims(SlowRenewals):
    """Ledger that grants claims after the first one only when they arrive."""

    async def claim(self, key: str, answers_digest: str, **options: Any) -> ClaimAnswer:
        if self.sent.is_set():
            self.again.set()
            await self.granted.wait()
        return await super().claim(key, answers_digest, **options)

    def __init__(self) -> None:
        super().__init__(System())
        self.again, self.granted = anyio.Event(), anyio.Event()
        self.arrives.set()


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_message_that_arrives_behind_the_release_does_not_hold_the_call(is_forgotten: bool) -> None:
    """It is a renewal, or the claim that a leg sends instead if the ledger has lost its entry."""
    ledger = SlowClaims() if is_forgotten else SlowRenewals(System())
    sent, arrives = (ledger.again, ledger.granted) if isinstance(ledger, SlowClaims) else (ledger.sent, ledger.arrives)
    claim = LedgerClaim(ledger, "call", "pay", keep=3600.0)
    await claim.begin("the answers", at_once=True, remember=journal)
    if is_forgotten:
        ledger._entries.clear()  # pyright: ignore[reportPrivateUsage]
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:

            async def renew() -> None:
                with pytest.raises(CallTakenOver):
                    await claim.renew()

            group.start_soon(renew)
            await sent.wait()
            await claim.release()
            arrives.set()
    assert (
        await LedgerClaim(ledger, "call", "pay", keep=3600.0).begin("more answers", at_once=True, remember=journal)
        is None
    )


class Hanging(MemoryLedger):
    """Ledger whose writes never end."""

    hung = False

    async def note(self, key: str, name: str, value: str, *, holder: str, epoch: int) -> bool:
        self.hung = True
        await anyio.sleep_forever()
        return False


async def ready() -> Elicit[bool]:
    return Elicit("Ready?", bool)


async def number(ready: Annotated[bool, Resolve(ready)]) -> int:
    return 7


async def test_a_claim_is_taken_back_though_noting_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "_LAST_WORDS_SECONDS", 0.05)
    ledger = Hanging()
    shop = Shop(ledger)

    async def ask(ctx: Context[Any, Any], drawn: Annotated[int, Resolve(number, remember=True)]) -> str:
        return f"{drawn} {await ctx.ask('sure', 'Sure?', bool)}"

    shop.add(ask)
    legs = LegByLeg(shop)
    with anyio.fail_after(WAIT):
        await legs.leg("ask")
        await legs.leg("ask", answers={"ready": {"value": True}}, state=legs.token)
        assert ledger.hung
        # Were it still held, this would wait for its holder, and be answered that it still runs.
        told = await legs.leg("ask", answers={"sure": {"value": True}}, state=legs.token)
    assert text_of(told) == "7 True"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "PATIENCE_SECONDS", 0.1)


class Silent(MemoryLedger):
    """Ledger that hears nothing more of a holder, as if its process were dead or stuck."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(system=System(time=self.clock))

    async def renew(self, key: str, *, holder: str, epoch: int, lease: float) -> bool:
        raise LedgerDown("nothing is heard of it")

    async def release(self, key: str, *, holder: str, **more: Any) -> None:
        raise LedgerDown("nothing is heard of it")


async def test_leg_that_lost_its_claim_does_not_begin_its_body() -> None:
    ledger = Silent()
    shop, looks = Shop(ledger), itertools.count(1)
    began, go_on = anyio.Event(), anyio.Event()
    told: list[Any] = []

    async def price() -> int:
        # The first leg of the call gets its token; the second one is slow.
        if next(looks) == 2:
            began.set()
            await go_on.wait()
        return 12

    async def look(price: Annotated[int, Resolve(price)]) -> str:
        shop.ran.append("look")
        return f"{price}, no. {len(shop.ran)}"

    async def slow() -> None:
        with pytest.raises(MCPError) as caught:
            await legs.leg("look", state=legs.token)
        told.append(caught.value.error.data)

    legs = await begun(shop, look)
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(slow)
            await began.wait()
            ledger.clock.advance(LEASE_SECONDS + 1)
            assert text_of(await legs.leg("look", state=legs.token)) == "12, no. 1"
            go_on.set()
        assert text_of(await legs.leg("look", state=legs.token)) == "12, no. 1"
    assert [data["reason"] for data in told] == ["still_running"]
    assert shop.ran == ["look"]
