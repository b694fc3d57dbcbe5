"""The protocol of an intent: a first request and others that join its call, on several instances, with one ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mcp_types import CallToolResult, ElicitResult, InputResponse, TextContent

from roundtrip.engine.leg import Finished
from roundtrip.engine.outcomes import record_outcome
from roundtrip.errors import AnsweredOtherwise, BodyNotRun, OutcomeUnknown, StillRunning
from roundtrip.ledger.machines import EntryState
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Action, Asked, Entry, Journal, from_text
from roundtrip.machine.table import State
from roundtrip.once.exactly_once import LedgerClaim
from roundtrip.once.intent_memory import Adopted, IntentMemory
from roundtrip.once.intents import IntentClaim
from roundtrip.system import System
from roundtrip.tokens.token import JournalCodec
from roundtrip.tools.intents import IntentPolicy
from tests.exhaustive.explorer import Operations, Worker
from tests.exhaustive.ledgers import KEY, PayingOnce, text_of

__all__ = ["SharingAnIntent"]

_CODEC: Final = JournalCodec(None)
_POLICY: Final = IntentPolicy("pay", "template", ("order",))
_QUESTION: Final = "sure"
_LIFE_SECONDS: Final = 1e6
_ALIKE: Final = "the arguments"


def _no_former(ledger: Any, call_id: str) -> LedgerClaim:
    """Return the claim that only calls of older builds need."""
    return LedgerClaim(ledger, call_id, "pay", 3600)


class SharingAnIntent(PayingOnce):
    """Scene in which each worker serves all requests of one client, who wants the same as the others.

    Args:
        operations: The operations of all workers.
        differs: True if each client answers otherwise.
    """

    def __init__(self, operations: Operations, *, differs: bool = False) -> None:
        super().__init__(operations)
        self._differs = differs
        self._asked_in: set[str] = set()
        """The calls in which clients were asked."""

    async def work(self, worker: Worker) -> str:
        loop = self.operations.loop
        system = System(time=loop.time, monotonic=loop.time, entropy=worker.name_of)
        ledger = self.connection()
        token: Journal | None = None
        responses: Mapping[str, InputResponse | None] = {}
        given = worker.number if self._differs else 0
        while True:
            worker.forget()
            # Its token and answers are all that a client remembers.
            worker.seen.append("nothing" if token is None else f"{token.call_id} {token.leg} {token.chain}")
            memory = IntentMemory(
                "pay", "the user", _CODEC, lambda journal, is_over: journal, True, "", is_shared=False
            )
            claim = IntentClaim(
                ledger,
                KEY,
                "pay",
                3600,
                system=system,
                memory=memory,
                policy=_POLICY,
                kept_for=3600,
                former_claim=partial(_no_former, ledger),
            )
            self.holders[worker.number] = worker.name_of(12).hex()
            try:
                opening = await claim.open(token, responses, _ALIKE, at_once=False)
                if not isinstance(opening, Adopted):
                    return f"result of {text_of(_value_of(opening))}"
                journal = opening.journal or _new_journal(f"call of {'abc'[worker.number]}")
                claim.call_id = journal.call_id
                brought = opening.responses.get(_QUESTION)
                # An answer counts only for the wording of its call.
                if brought is not None and journal.asked[_QUESTION].pin == _pin(journal.call_id):
                    entry = Entry(Action.ACCEPT, _pin(journal.call_id), {"value": given})
                    journal = replace(journal, entries={_QUESTION: entry}, asked={})
                if _QUESTION not in journal.entries:
                    token = replace(
                        journal, leg=journal.leg + 1, chain=opening.chain, asked={_QUESTION: _asked(journal.call_id)}
                    )
                    await claim.begin("", at_once=False, remember=lambda kept=token: kept)
                    await claim.leave()
                    self._asked_in.add(token.call_id)
                    responses = {_QUESTION: ElicitResult(action="accept", content={"value": given})}
                    continue
                await claim.begin("", at_once=False, remember=lambda kept=journal: kept)
                call = Call(journal.call_id, state=State.RESOLVING)
                answer: Any = journal.entries[_QUESTION].data
                work = claim.hold(self._serve(worker, claim, call, answer["value"]))
                return f"result of {text_of(_value_of(await record_outcome(claim, call, work, computed=tuple)))}"
            except OutcomeUnknown:
                return "unknown"
            except AnsweredOtherwise:
                token, responses = None, {}
                # A leg that was silent for too long has asked in a call that nobody continues.
                if not self._differs and not self.has_waited:
                    return "answered otherwise"
            except StillRunning:
                continue
            except BodyNotRun as error:
                return type(error).__name__

    async def _serve(self, worker: Worker, claim: IntentClaim, call: Call, given: int) -> Finished:
        await claim.start_body()
        call.state = State.EXECUTING
        self.bodies.append(worker.number)
        await self.operations.ask("the body", lambda: self.ended.append(worker.number))
        return Finished(CallToolResult(content=[TextContent(text=f"{'abc'[worker.number]} with {given}")]))

    def store(self) -> tuple[Any, ...]:
        entry = self.memory.entry
        return (*super().store(), () if entry is None else tuple(entry.notes.items()), tuple(sorted(self._asked_in)))

    def holds(self, worker: Worker) -> Any:
        return super().holds(worker), worker.number if self._differs else 0

    def judge(self, workers: Sequence[Worker], *, ended: bool) -> list[str]:
        broken = super().judge(workers, ended=ended)
        if len(calls := {_call_of(note) for note in self.journals}) > 1:
            broken.append(f"the journal of a call was replaced by another call's: {sorted(calls)}")
        if len(self._asked_in) > 1 and not self.has_waited:
            broken.append(f"two clients were asked in calls of their own: {sorted(self._asked_in)}")
        if any(worker.outcome == "answered otherwise" for worker in workers):
            broken.append("a client answered like the others, and its answer did not count")
        entry = self.memory.entry
        is_settled = entry is not None and entry.state is EntryState.SETTLED
        results = [worker for worker in workers if (worker.outcome or "").startswith("result")]
        # The clock may have forgotten the entry by then.
        if ended and results and not is_settled and not self.has_waited:
            broken.append("there is a result, and the ledger has none")
        return broken


def _new_journal(call_id: str) -> Journal:
    return Journal(call_id, 0.0, _LIFE_SECONDS, _LIFE_SECONDS, 0, 0)


def _pin(call_id: str) -> bytes:
    return call_id.encode() + bytes(2)


def _asked(call_id: str) -> Asked:
    return Asked(_pin(call_id))


def _call_of(note: str) -> str:
    return _CODEC.read(from_text(json.loads(note)["journal"])).call_id


def _value_of(end: Any) -> CallToolResult:
    if isinstance(end, Finished) and isinstance(end.value, CallToolResult):
        return end.value
    raise AssertionError(f"a leg ended with {end}")
