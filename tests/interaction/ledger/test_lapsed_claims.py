"""A leg whose lease has ended, and whose call no other leg has claimed."""

import anyio
import pytest
from mcp_types import CallToolResult

from roundtrip.engine.claim import record_outcome
from roundtrip.errors import CallTakenOver, OutcomeUnknown
from roundtrip.ledger import MemoryLedger
from roundtrip.machine.call import Call
from roundtrip.machine.table import State
from roundtrip.server.exactly_once import LEASE_SECONDS, LedgerClaim
from roundtrip.system import System

pytestmark = pytest.mark.anyio

BOUND = 20.0


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.system = System(monotonic=lambda: self.now)

    def end_leases(self) -> None:
        self.now += LEASE_SECONDS + 1


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
    ledger = SlowRenewals(clock.system)
    claim = LedgerClaim(ledger, "call", "pay", keep=3600.0)
    await claim.begin("the answers", at_once=False)
    clock.end_leases()
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            group.start_soon(claim.renew)
            await ledger.sent.wait()
            await claim.start_body()
            clock.end_leases()
            ledger.arrives.set()
    await claim.require_held()
    await claim.release()


async def test_body_that_was_stopped_in_the_middle_does_not_begin_again() -> None:
    clock = Clock()
    ledger = MemoryLedger(system=clock.system)
    claim = LedgerClaim(ledger, "call", "pay", keep=3600.0)
    await claim.begin("the answers", at_once=False)

    async def work() -> CallToolResult:
        await claim.start_body()
        call.state = State.EXECUTING
        clock.end_leases()
        raise CallTakenOver("tool 'pay'")

    call = Call("call", state=State.RESOLVING)
    with pytest.raises(CallTakenOver):
        await record_outcome(claim, call, work(), result_of=lambda value: value, computed=tuple)
    with pytest.raises(OutcomeUnknown):
        await LedgerClaim(ledger, "call", "pay", keep=3600.0).begin("the answers", at_once=False)
