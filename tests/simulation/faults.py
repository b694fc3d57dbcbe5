"""Faults of kinds that reviews have found before, each put into the real code, to show that histories reveal them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from roundtrip.engine import leg_run
from roundtrip.engine.known import KnownAnswers
from roundtrip.ledger.contract import Ledger, LedgerDown
from roundtrip.ledger.entry import EntryLedger, LedgerEntry
from roundtrip.ledger.machines import TASK_MACHINE, EntryEvent, EntryState, StoredEvent, StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.legs import boundary
from roundtrip.once.exactly_once import LedgerClaim
from roundtrip.once.intent_memory import Adopted, IntentMemory
from roundtrip.once.intents import IntentClaim
from roundtrip.stored import sweep
from roundtrip.stored.content import CallSeal
from roundtrip.stored.lease import CallLease
from roundtrip.tokens.protection import Protection
from roundtrip.tokens.token import Sealer
from roundtrip.tools.intents import CallIntent, IntentPolicy
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


def _intents_leave_out(patch: Patch, changed: Callable[[IntentPolicy, list[Any]], tuple[Any, Any]]) -> None:
    intent = IntentPolicy.intent

    def named(policy: IntentPolicy, *given: Any, owners: list[Any]) -> CallIntent | None:
        policy, owners = changed(policy, owners)
        return intent(policy, *given, owners=owners)

    patch.setattr(IntentPolicy, "intent", named)


def all_callers_share_intents(patch: Patch) -> None:
    """Leave the caller out of the names of intents."""
    _intents_leave_out(patch, lambda policy, owners: (policy, owners[:1]))


def all_tools_share_intents(patch: Patch) -> None:
    """Leave the tool out of the names of intents."""
    _intents_leave_out(patch, lambda policy, owners: (policy._replace(tool=""), owners))


def intents_ignore_other_arguments(patch: Patch) -> None:
    """Give the result of an intent to calls with other arguments."""
    intent = IntentPolicy.intent

    def alike(policy: IntentPolicy, *given: Any, **options: Any) -> CallIntent | None:
        found = intent(policy, *given, **options)
        return None if found is None else found._replace(digest="")

    patch.setattr(IntentPolicy, "intent", alike)


def claim_is_released_without_its_journal(patch: Patch) -> None:
    """Release the claim on an intent before its journal is saved."""

    def nothing(claim: IntentClaim) -> Any:
        return claim.release()

    patch.setattr(IntentClaim, "leave", nothing)


def steps_belong_to_one_leg(patch: Patch) -> None:
    """Name the notes of steps by the number of the leg."""
    adopt = IntentMemory.adopt

    def adopted(memory: IntentMemory, *given: Any, **options: Any) -> Adopted:
        found = adopt(memory, *given, **options)
        memory.terms += str(0 if found.journal is None else found.journal.leg)
        return found

    patch.setattr(IntentMemory, "adopt", adopted)


def recalled_result_belongs_to_any_answers(patch: Patch) -> None:
    """Give the result of an intent to requests that have answered otherwise."""
    recall = cast("Any", IntentClaim)._recall

    def trusting(claim: IntentClaim, answer: Any, result: str, journal: Any, responses: Any) -> Any:
        return recall(claim, answer, result, journal, {})

    patch.setattr(IntentClaim, "_recall", trusting)


def decline_is_forgotten(patch: Patch) -> None:
    """Release the claim of a declined call, and keep no decline."""

    async def decline(claim: IntentClaim, reason: str) -> None:
        await claim.release()

    patch.setattr(IntentClaim, "decline", decline)


def decline_never_lapses(patch: Patch) -> None:
    """Keep a decline for as long as a result."""
    settle = cast("Any", IntentClaim)._settle

    async def kept(claim: Any, text: str | None, **options: Any) -> None:
        await settle(claim, text, **({"declined_for": 1e6} if options else {}))

    patch.setattr(IntentClaim, "_settle", kept)


def any_result_is_void(patch: Patch) -> None:
    """Drop the result of an intent without looking at its epoch."""
    ledgers = cast("Any", SimulatedLedger)
    claim = EntryLedger.claim

    async def voiding(ledger: EntryLedger, key: str, *given: Any, **options: Any) -> Any:
        def drop(entry: LedgerEntry, now: float) -> None:
            entry.apply(EntryEvent.VOID)

        if options.get("is_bound"):
            await ledgers._change(ledger, key, drop)
        return await claim(ledger, key, *given, **options)

    patch.setattr(SimulatedLedger, "claim", voiding)


def other_arguments_take_over(patch: Patch) -> None:
    """Begin a new call with other arguments, whatever the earlier call has done."""

    async def came_to_nothing(claim: IntentClaim, answer: Any) -> bool:
        return True

    patch.setattr(IntentClaim, "_came_to_nothing", came_to_nothing)


def token_wins_over_a_newer_journal(patch: Patch) -> None:
    """Continue from the token's journal, although the ledger has a newer one."""
    adopt = IntentMemory.adopt

    def adopted(memory: IntentMemory, text: str | None, token: Any, responses: Any, **options: Any) -> Adopted:
        return adopt(memory, text if token is None else None, token, responses, **options)

    patch.setattr(IntentMemory, "adopt", adopted)


def stale_journal_overwrites_a_newer_one(patch: Patch) -> None:
    """Save the journal of a leg that repeated earlier rounds as if it were the whole one."""
    adopt = IntentMemory.adopt

    def adopted(memory: Any, *given: Any, **options: Any) -> Adopted:
        found = adopt(memory, *given, **options)
        memory._hidden = None
        return found

    patch.setattr(IntentMemory, "adopt", adopted)


def start_of_an_intents_body_is_not_told(patch: Patch) -> None:
    """Forget to record in the ledger that the body of an intent begins."""

    async def start_body(claim: IntentClaim) -> None:
        pass

    patch.setattr(IntentClaim, "start_body", start_body)


def answers_count_for_questions_of_other_tokens(patch: Patch) -> None:
    """Read an answer although its token has not asked the question."""
    adopt = IntentMemory.adopt

    def adopted(memory: Any, text: str | None, token: Any, responses: Any, **options: Any) -> Adopted:
        newest, _ = memory._read(text, is_over=False)
        if token is not None and newest is not None:
            token = replace(token, asked={**newest.asked, **token.asked})
        return adopt(memory, text, token, responses, **options)

    patch.setattr(IntentMemory, "adopt", adopted)


def rotated_pins_make_other_answers(patch: Patch) -> None:
    """Compare the answers of an intent by pins of one key."""
    was_given = IntentMemory.was_given

    def was_given_by_one_key(memory: IntentMemory, *given: Any, **options: Any) -> bool:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(memory.codec.pinner), "rotates", False)
            return was_given(memory, *given, **options)

    patch.setattr(IntentMemory, "was_given", was_given_by_one_key)


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
    all_callers_share_intents,
    all_tools_share_intents,
    intents_ignore_other_arguments,
    claim_is_released_without_its_journal,
    steps_belong_to_one_leg,
    recalled_result_belongs_to_any_answers,
    decline_is_forgotten,
    decline_never_lapses,
    any_result_is_void,
    other_arguments_take_over,
    token_wins_over_a_newer_journal,
    stale_journal_overwrites_a_newer_one,
    start_of_an_intents_body_is_not_told,
    answers_count_for_questions_of_other_tokens,
    rotated_pins_make_other_answers,
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
