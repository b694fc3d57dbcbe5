"""Every ledger moves its entries as the table says: in memory, in a file, on a real Redis and a real PostgreSQL."""

import functools
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.from_thread
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from transitions import Machine

from roundtrip.ledger import ClaimAnswer, ClaimStatus, Ledger
from roundtrip.ledger.machines import ENTRY_MACHINE, EntryEvent, EntryState
from roundtrip.trace.drawings.machine import transitions_machine
from tests.kit.stores import KINDS, Servers, ledger_of
from tests.kit.tiers import examples

LONG = 60.0
MOMENT = 0.002
"""A lease or a time to keep that has ended after a pause."""

HOLDERS = st.sampled_from(["one", "two"])
NOTES = st.none() | st.dictionaries(st.sampled_from("xy"), st.sampled_from(["", "1", "2"]))
SEEN_AS = {
    EntryState.FREE: None,
    EntryState.HELD: ClaimStatus.RUNNING,
    EntryState.RUNNING: ClaimStatus.RUNNING,
    EntryState.LAPSED: ClaimStatus.UNKNOWN,
    EntryState.SETTLED: ClaimStatus.SETTLED,
    EntryState.DECLINED: ClaimStatus.DECLINED,
    EntryState.UNKNOWN: ClaimStatus.UNKNOWN,
}


class Model:
    """Entry that a machine of `transitions` moves, if the table has an arrow."""

    state: str

    def __init__(self) -> None:
        self.machine: Any = transitions_machine(ENTRY_MACHINE, Machine, ignore_invalid_triggers=True)
        self.machine.add_model(self)
        self.holder = self.digest = ""
        self.epoch = 0
        self.result: str | None = None
        self.notes: dict[str, str] = {}

    def may(self, event: EntryEvent) -> bool:
        return (EntryState(self.state), event) in ENTRY_MACHINE.targets

    @property
    def has_digest(self) -> bool:
        """Return True if a bound claim needs the entry's digest."""
        return self.state != EntryState.FREE or any(self.notes.values())

    def apply(self, event: EntryEvent) -> bool:
        trigger: Any = vars(self)["trigger"]
        return trigger(event.value)


class LedgerRules(RuleBasedStateMachine):
    """One entry of a ledger, used by two holders, some of which are late."""

    def __init__(self, ledger: Ledger, portal: anyio.from_thread.BlockingPortal) -> None:
        super().__init__()
        self.ledger, self.portal = ledger, portal
        self.key = f"call-{id(self)}-{portal.call(anyio.current_time)}"
        self.model = Model()
        self.epochs = [0]

    def run(self, method: Any, *args: Any, **more: Any) -> Any:
        return self.portal.call(functools.partial(method, self.key, *args, **more))

    def pause(self) -> None:
        self.portal.call(anyio.sleep, MOMENT * 3)

    def draw_epoch(self, data: st.DataObject, *others: None) -> int | None:
        return data.draw(st.sampled_from([*others, *self.epochs[-3:]]))

    @rule(
        holder=HOLDERS,
        digest=st.sampled_from("ab"),
        notes=NOTES,
        options=st.sets(st.sampled_from(["tentative", "rerun", "is_bound"])),
        dies=st.booleans(),
        data=st.data(),
    )
    def claim(
        self, holder: str, digest: str, notes: dict[str, str] | None, options: set[str], dies: bool, data: st.DataObject
    ) -> None:
        model = self.model
        asked: dict[str, Any] = dict.fromkeys(options, True)
        tentative, rerun = "tentative" in options, "rerun" in options
        voids = self.draw_epoch(data, None)
        answer: ClaimAnswer = self.run(
            self.ledger.claim,
            digest,
            holder=holder,
            lease=MOMENT if dies else LONG,
            keep=LONG,
            notes=notes,
            voids=voids,
            **asked,
        )
        if "is_bound" in options and model.has_digest and digest != model.digest:
            has_ended = model.state in (EntryState.FREE, EntryState.SETTLED)
            if not has_ended or voids != model.epoch:
                shown = (model.result, model.notes) if has_ended else (None, dict[str, str]())
                assert answer == ClaimAnswer(ClaimStatus.CONFLICT, model.digest, *shown)
                assert answer.epoch == model.epoch
                return
            model.notes = dict.fromkeys(model.notes, "")
        if voids == model.epoch:
            model.apply(EntryEvent.VOID)
        if rerun and model.may(EntryEvent.REOPEN):
            tentative = tentative and not (model.state == "lapsed" and model.holder == holder)
            model.apply(EntryEvent.REOPEN)
        was_free = model.state == EntryState.FREE
        event = EntryEvent.HOLD if tentative else EntryEvent.START
        if not (was_free or model.holder == holder) or not model.may(event):
            self.describes_the_entry(answer)
            return
        model.apply(event)
        model.notes.update(notes or {})
        assert answer == ClaimAnswer(ClaimStatus.GRANTED, digest, notes=model.notes)
        if was_free:
            assert answer.epoch > max(self.epochs)
            self.epochs.append(answer.epoch)
            model.epoch, model.holder, model.result = answer.epoch, holder, None
        assert answer.epoch == model.epoch
        model.digest = digest
        if dies:
            self.pause()
            model.apply(EntryEvent.LAPSE)

    def write(self, event: EntryEvent, holder: str, epoch: int | None) -> bool:
        """Return True, and move the model, where the table and the guards permit it."""
        model = self.model
        return holder == model.holder and epoch in (None, model.epoch) and model.apply(event)

    @rule(holder=HOLDERS, data=st.data(), dies=st.booleans())
    def renew(self, holder: str, data: st.DataObject, dies: bool) -> None:
        epoch = self.draw_epoch(data)
        renewed = self.run(self.ledger.renew, holder=holder, epoch=epoch, lease=MOMENT if dies else LONG)
        assert renewed == self.write(EntryEvent.RENEW, holder, epoch)
        if renewed and dies:
            self.pause()
            self.model.apply(EntryEvent.LAPSE)

    @rule(holder=HOLDERS, data=st.data(), name=st.sampled_from("xy"), value=st.sampled_from("12"))
    def note(self, holder: str, data: st.DataObject, name: str, value: str) -> None:
        epoch = self.draw_epoch(data)
        noted = self.run(self.ledger.note, name, value, holder=holder, epoch=epoch)
        assert noted == self.write(EntryEvent.NOTE, holder, epoch)
        if noted:
            self.model.notes[name] = value

    @rule(
        holder=HOLDERS,
        data=st.data(),
        result=st.sampled_from([None, "r", "s"]),
        forgotten=st.booleans(),
        declined_for=st.sampled_from([None, MOMENT, LONG]),
    )
    def settle(
        self, holder: str, data: st.DataObject, result: str | None, forgotten: bool, declined_for: float | None
    ) -> None:
        epoch = self.draw_epoch(data)
        keep = MOMENT if forgotten else LONG
        # Leave out the option where it is not used, as legs without it do.
        more = {} if declined_for is None else {"declined_for": declined_for}
        settled = self.run(self.ledger.settle, holder=holder, epoch=epoch, result=result, keep=keep, **more)
        model = self.model
        if model.state in (EntryState.SETTLED, EntryState.DECLINED) and result != model.result:
            assert not settled
            return
        event = EntryEvent.LOSE if result is None else EntryEvent.SETTLE
        assert settled == self.write(EntryEvent.DECLINE if more else event, holder, epoch)
        if settled:
            model.result = result
        if settled and forgotten:
            self.pause()
            model.apply(EntryEvent.FORGET)
            model.notes.clear()
        elif settled and declined_for == MOMENT:
            self.pause()
            model.apply(EntryEvent.LAPSE)

    @rule(holder=HOLDERS, data=st.data(), notes=NOTES)
    def release(self, holder: str, data: st.DataObject, notes: dict[str, str] | None) -> None:
        epoch = self.draw_epoch(data, None)
        self.run(self.ledger.release, holder=holder, epoch=epoch, notes=notes)
        if self.write(EntryEvent.RELEASE, holder, epoch):
            self.model.notes.update(notes or {})

    @invariant()
    def is_seen_as_the_table_says(self) -> None:
        model = self.model
        seen: ClaimAnswer | None = self.run(self.ledger.wait, patience=0)
        if seen is None:
            assert model.state == EntryState.FREE
        else:
            self.describes_the_entry(seen)

    def describes_the_entry(self, answer: ClaimAnswer) -> None:
        """Check an answer to a leg that does not have the claim."""
        model = self.model
        assert answer == ClaimAnswer(
            SEEN_AS[EntryState(model.state)] or ClaimStatus.GRANTED, model.digest, model.result
        )
        assert answer.epoch == model.epoch
        if answer.status is ClaimStatus.DECLINED:
            assert 0 < answer.lease <= LONG


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_moves_its_entries_as_the_table_says(kind: str, started: Servers, tmp_path: Path) -> None:
    ledger = ledger_of(kind, started, tmp_path)
    with anyio.from_thread.start_blocking_portal() as portal:
        run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
            cast("type[LedgerRules]", lambda: LedgerRules(ledger, portal)),
            settings=settings(deadline=None, stateful_step_count=25, max_examples=examples(30)),
        )
        portal.call(ledger.aclose)
