"""Faults of kinds that reviews have found before, each put into the real code, to show that histories reveal them."""

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import pytest

from roundtrip.engine import leg_run
from roundtrip.engine.known import KnownAnswers
from roundtrip.ledger.contract import Ledger, LedgerDown
from roundtrip.ledger.entry import LedgerEntry
from roundtrip.ledger.machines import TASK_MACHINE, EntryEvent, EntryState, StoredEvent, StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.legs import boundary
from roundtrip.once.exactly_once import LedgerClaim
from roundtrip.stored import sweep
from roundtrip.stored.content import CallSeal
from roundtrip.stored.lease import CallLease
from roundtrip.tokens.protection import Protection
from roundtrip.tokens.token import Sealer
from tests.simulation.store import SimulatedLedger, SimulatedTasks
from tests.simulation.world import History, simulate

__all__ = ["FAULTS", "first_broken", "found"]

Patch = pytest.MonkeyPatch

_ARROWS: Final = cast("dict[tuple[StoredState, StoredEvent], StoredState]", TASK_MACHINE.targets)
_NOTHING: Final = property(lambda lease: [], lambda lease, noted: None)


def stale_worker_writes(patch: Patch) -> None:
    """Let a worker write after another one has claimed its task."""

    def is_held(entry: CallEntry, holder: str, epoch: int) -> bool:
        return entry.state is StoredState.RUNNING

    patch.setattr(CallEntry, "is_held", is_held)


def body_of_a_dead_worker_runs_again(patch: Patch) -> None:
    """Forget to store that a body begins which must not begin twice."""

    async def start_body(claim: CallLease) -> None:
        pass

    patch.setattr(CallLease, "start_body", start_body)


def lease_of_a_body_frees_its_entry(patch: Patch) -> None:
    """Let another leg claim an entry whose holder died in the body."""
    advance = LedgerEntry.advance

    def freeing(entry: LedgerEntry, now: float) -> None:
        advance(entry, now)
        if entry.state is EntryState.LAPSED:
            entry.state = EntryState.FREE

    patch.setattr(LedgerEntry, "advance", freeing)


def steps_of_a_repeated_leg_run_again(patch: Patch) -> None:
    """Let a leg forget the steps that an earlier copy of it has stored in the ledger."""
    patch.setattr(LedgerClaim, "noted", _NOTHING, raising=False)


def result_belongs_to_any_answers(patch: Patch) -> None:
    """Give the result of a call to a leg with other answers."""

    def answers_digest(*given: Any) -> str:
        return "the same"

    patch.setattr(leg_run, "answers_digest", answers_digest)


def results_lie_readable(patch: Patch) -> None:
    """Store results and steps of calls in a ledger as they are."""

    def same(claim: LedgerClaim, text: str, use: str) -> str:
        return text

    patch.setattr(LedgerClaim, "_seal", same)
    patch.setattr(LedgerClaim, "_open", same)


def tasks_lie_readable(patch: Patch) -> None:
    """Store tasks as they are."""
    init: Any = CallSeal.__init__

    def unsealed(seal: CallSeal, sealer: Any, hints: tuple[str, ...], service: str) -> None:
        init(seal, None, hints, service)

    patch.setattr(CallSeal, "__init__", unsealed)


def one_failure_ends_all_renewals(patch: Patch) -> None:
    """Extend no lease of a process any more once it could not reach the ledger."""
    down: list[Ledger] = []
    ledgers, claims = cast("Any", SimulatedLedger), cast("Any", LedgerClaim)
    change, renew_in_time = ledgers._change, claims.renew_in_time

    async def noticing(ledger: SimulatedLedger, *given: Any, **options: Any) -> Any:
        try:
            return await change(ledger, *given, **options)
        except LedgerDown:
            down.append(ledger)
            raise

    def renew_before(claim: LedgerClaim) -> None:
        if claim.ledger not in down:
            renew_in_time(claim)

    patch.setattr(SimulatedLedger, "_change", noticing)
    patch.setattr(LedgerClaim, "renew_in_time", renew_before)


def only_the_newest_key_opens(patch: Patch) -> None:
    """Open nothing that was sealed with an older key."""
    init: Any = Sealer.__init__

    def forgetting(sealer: Any, *given: Any, **options: Any) -> None:
        init(sealer, *given, **options)
        del sealer._ciphers[1:]

    patch.setattr(Sealer, "__init__", forgetting)


def _release_after(patch: Patch, outcomes: type) -> None:
    record = LedgerClaim.record

    async def releasing(claim: LedgerClaim, outcome: Any) -> None:
        await (claim.release() if isinstance(outcome, outcomes) else record(claim, outcome))

    patch.setattr(LedgerClaim, "record", releasing)


def failed_body_runs_again(patch: Patch) -> None:
    """Free the entry of a body that has failed, as if it had not begun."""

    _release_after(patch, Exception)


def body_that_timed_out_runs_again(patch: Patch) -> None:
    """Free the entry of a body that was stopped in its middle."""
    _release_after(patch, type(None))


def any_leg_releases_an_entry(patch: Patch) -> None:
    """Let a leg release the claim of another one."""

    def write(entry: LedgerEntry, event: EntryEvent, *, holder: str, epoch: int | None) -> bool:
        return entry.apply(event)

    patch.setattr(LedgerEntry, "write", write)


def lost_write_counts_as_written(patch: Patch) -> None:
    """Report success to a writer that was too slow."""
    save = SimulatedTasks.save

    async def saved(tasks: SimulatedTasks, entry: CallEntry, *, version: int) -> bool:
        await save(tasks, entry, version=version)
        return True

    patch.setattr(SimulatedTasks, "save", saved)


def answer_wakes_no_worker(patch: Patch) -> None:
    """Store answers, and leave the task where it is."""
    patch.delitem(_ARROWS, (StoredState.ASKING, StoredEvent.WAKE))


def lost_announcement_loses_a_task(patch: Patch) -> None:
    """Look at the store only when it has announced something."""
    patch.setattr(sweep, "_SWEEP_SECONDS", 1e6)


def stored_steps_run_again(patch: Patch) -> None:
    """Let the next worker forget the steps of the one before."""
    patch.setattr(CallLease, "noted", _NOTHING, raising=False)


def cancellation_changes_an_end(patch: Patch) -> None:
    """Cancel a task that has its result."""
    patch.setitem(_ARROWS, (StoredState.COMPLETED, StoredEvent.CANCEL), StoredState.CANCELLED)


def token_works_for_other_callers(patch: Patch) -> None:
    """Bind no token to its caller."""

    def is_principal(digest: bytes, principal: str, call: bytes) -> bool:
        return True

    patch.setattr(boundary, "is_principal", is_principal)


def handle_works_for_other_callers(patch: Patch) -> None:
    """Let each caller be the same."""

    def principal(protection: Protection, ctx: Any) -> str:
        return "anyone"

    patch.setattr(Protection, "principal", principal)


def long_body_loses_its_lease(patch: Patch) -> None:
    """Extend no lease."""

    def renew_in_time(claim: LedgerClaim) -> None:
        pass

    patch.setattr(LedgerClaim, "renew_in_time", renew_in_time)


def lost_task_is_not_told(patch: Patch) -> None:
    """Give up the lease of a body that must not run twice as if it had not begun."""

    def give_up(entry: CallEntry, now: float) -> None:
        entry.apply(StoredEvent.YIELD, now)

    patch.setattr(CallEntry, "give_up", give_up)


def earlier_answers_are_forgotten(patch: Patch) -> None:
    """Begin each leg with the answers of its own round alone."""
    init: Any = KnownAnswers.__init__

    def forgetting(known: KnownAnswers, *given: Any) -> None:
        init(known, *given)
        known.entries.clear()

    patch.setattr(KnownAnswers, "__init__", forgetting)


FAULTS: Final[tuple[Callable[[Patch], None], ...]] = (
    stale_worker_writes,
    body_of_a_dead_worker_runs_again,
    lease_of_a_body_frees_its_entry,
    any_leg_releases_an_entry,
    lost_write_counts_as_written,
    answer_wakes_no_worker,
    lost_announcement_loses_a_task,
    stored_steps_run_again,
    cancellation_changes_an_end,
    token_works_for_other_callers,
    handle_works_for_other_callers,
    long_body_loses_its_lease,
    lost_task_is_not_told,
    earlier_answers_are_forgotten,
    failed_body_runs_again,
    body_that_timed_out_runs_again,
    steps_of_a_repeated_leg_run_again,
    result_belongs_to_any_answers,
    results_lie_readable,
    tasks_lie_readable,
    one_failure_ends_all_renewals,
    only_the_newest_key_opens,
)
"""Each of them must be found."""


def found(fault: Callable[[Patch], None], seeds: Iterable[int]) -> History | None:
    """Return the first history that breaks a promise with a fault; None if they all keep them."""
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        return first_broken(seeds)


def first_broken(seeds: Iterable[int]) -> History | None:
    """Return the first history that breaks a promise; None if they all keep them."""
    return next((history for history in map(simulate, seeds) if history.broken), None)
