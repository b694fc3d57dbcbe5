"""A leg's claim on its intent: later calls with the same intent join the call that began, or get its end.

The ledger's entry belongs to the intent, not to one call. Beside the notes of steps, it has one note with the intent's
memory.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from roundtrip.engine.claim import answers_digest
from roundtrip.engine.leg import Declined, Finished, JoinedCall
from roundtrip.errors import (
    AnsweredOtherwise,
    BodyNotRun,
    CallTakenOver,
    IntentUnreadable,
    LedgerUnavailable,
    OtherArguments,
    OutcomeUnknown,
    StillRunning,
    TokenRejected,
)
from roundtrip.ledger.contract import ClaimAnswer, ClaimStatus, LedgerDown
from roundtrip.machine.journal import Asked, Chain, Journal
from roundtrip.once.exactly_once import LedgerClaim, result_from
from roundtrip.once.intent_memory import Adopted, IntentMemory, Responses
from roundtrip.text import iso_text

if TYPE_CHECKING:
    from roundtrip.engine.computed import NotedValue
    from roundtrip.tools.intents import IntentPolicy

logger = logging.getLogger("roundtrip")

RECALLED_META: Final = "roundtrip/recalled"
"""Key in a result's `_meta`: the time at which the recalled result was recorded."""
MEMORY_NOTE: Final = "journal"
"""Name of the note with the intent's memory."""

IntentEnd = Finished | Declined | JoinedCall


@dataclass(eq=False, kw_only=True)
class IntentClaim(LedgerClaim):
    """One leg's claim on its intent."""

    memory: IntentMemory
    policy: IntentPolicy
    kept_for: float
    """Seconds for which the intent's end is kept."""
    voids: int | None = None
    """The epoch of a stored call's result that no longer counts, or of a call that came to nothing."""
    stored_nothing: Callable[[str], Awaitable[bool]] | None = None
    """Returns True if a stored call has come to nothing. It is None if this server has no stored calls."""
    former_digests: Sequence[str] = ()
    """The digests of the call's arguments that replaced keys make."""
    call_id: str = ""
    """The call that the leg continues."""
    recalled_from: str | None = None
    """The call whose end was recalled."""
    may_end_at_once: bool = False
    """True if the body may end within the request, although the call was to be stored."""
    is_over: bool = False
    """True once the claim has been released, or an outcome was recorded."""
    former_claim: Callable[[str], LedgerClaim]
    """Makes the claim on a call itself, which a build without intents may continue at the same time."""
    _formers: list[LedgerClaim] = field(default_factory=list[LedgerClaim])
    """The claims on calls that began at a build without intents."""
    _remember: Callable[[], Journal] | None = None
    _claim_notes: dict[str, str] = field(default_factory=dict[str, str])
    """Notes to save with the next claim."""
    _release_notes: dict[str, str] = field(default_factory=dict[str, str])
    """Notes to save with the release."""

    async def open(
        self, journal: Journal | None, responses: Responses, digest: str, *, at_once: bool
    ) -> Adopted | IntentEnd:
        """Claim the intent, and return what the leg begins with, or the end of the intent.

        Args:
            journal: The journal in the token, or of this request's previous leg.
            responses: The answers that the request has brought.
            digest: The digest of the call's arguments.
            at_once: True if nothing runs before the body.

        Raises:
            StillRunning: Another leg still has the claim when the wait ends.
            OutcomeUnknown: The body began, and its outcome is unknown.
            OtherArguments: Another call has the same intent, with other arguments, and has not come to nothing.
            AnsweredOtherwise: The request answers a question that another request has answered otherwise.
            LedgerUnavailable: The ledger is down, or no key of this server opens its entry.
            Exception: The error of the earlier run.
        """
        self._digest, self._is_firm = digest, at_once
        adopted: list[Adopted] = []
        is_renewed = self.voids is not None

        def read(answer: ClaimAnswer) -> None:
            if answer.status is ClaimStatus.GRANTED:
                adopted.append(self._adopt(answer.notes, journal, responses, is_renewed))
                self._terms = self.memory.terms
                self._read_notes(answer)

        answer = await self._enter(read)
        if answer.answers_digest in self.former_digests:
            # The intent began with a replaced key.
            self._digest = answer.answers_digest
            if answer.status is ClaimStatus.CONFLICT:
                answer = await self._enter(read)
        # Only a call that begins may take over an intent. A token belongs to its own arguments.
        if answer.status is ClaimStatus.CONFLICT and journal is None and await self._came_to_nothing(answer):
            self.voids = answer.epoch
            answer = await self._enter(read)
        if adopted:
            self.renew_in_time()
            found = await self._claim_formers(adopted[0], journal, responses)
            return adopted[0] if found is None else Finished(found)
        self.is_over = True
        # A leg that has waited sees an entry with which its own arguments were not compared.
        if answer.status is ClaimStatus.CONFLICT or answer.answers_digest != self._digest:
            raise OtherArguments(self.owner)
        if answer.status is ClaimStatus.UNKNOWN or answer.result is None:
            raise OutcomeUnknown(self.owner)
        return self._recall(answer, answer.result, journal, responses)

    async def _came_to_nothing(self, answer: ClaimAnswer) -> bool:
        """Return True if the call with the other arguments has ended without a run, and has computed nothing.

        Raises:
            LedgerUnavailable: The stored calls cannot be read, or no key of this server opens the entry.
        """
        digest, text = answer.answers_digest, answer.notes.get(MEMORY_NOTE)
        if any(value and name != MEMORY_NOTE for name, value in answer.notes.items()):
            return False
        result = answer.result
        end: dict[str, Any] = json.loads(self._open(result, "result", digest)) if result is not None else {}
        is_over = "declined" in end
        if "stored" in end and self.stored_nothing is not None:
            try:
                is_over = await self.stored_nothing(end["stored"])
            except LedgerDown as error:
                logger.error("%s", error)
                raise LedgerUnavailable(self.owner) from error
        if not text or (end and not is_over):
            return is_over
        try:
            return self.memory.came_to_nothing(self._open(text, MEMORY_NOTE, digest), is_over=is_over)
        except TokenRejected as error:
            raise IntentUnreadable(self.owner) from error

    def _recall(self, answer: ClaimAnswer, result: str, journal: Journal | None, responses: Responses) -> IntentEnd:
        """Return the recorded end of the intent."""
        stored = json.loads(self._open(result, "result"))
        if "stored" in stored:
            if journal is not None and journal.asked.keys() & responses.keys():
                # The stored call asks in its own way, so this answer did not reach it.
                raise AnsweredOtherwise(self.owner)
            return JoinedCall(stored["stored"], answer.epoch)
        if answer.status is ClaimStatus.DECLINED:
            self.recalled_from = stored["call"]
            return Declined(stored["declined"])
        asked: Mapping[str, Asked] = journal.asked if journal is not None else {}
        self.memory.given = stored["given"]
        is_other = journal is not None and journal.call_id != stored["call"]
        for key in asked.keys() & responses.keys():
            if not self.memory.was_given(key, responses[key], asked[key], of_other_call=is_other):
                raise AnsweredOtherwise(self.owner)
        self.recalled_from = stored["call"]
        recalled = result_from(stored)
        return Finished(recalled.model_copy(update={"meta": {**(recalled.meta or {}), RECALLED_META: stored["at"]}}))

    def _adopt(
        self, notes: Mapping[str, str], token: Journal | None, responses: Responses, is_renewed: bool
    ) -> Adopted:
        text = notes.get(MEMORY_NOTE)
        text = self._open(text, MEMORY_NOTE) if text else None
        try:
            return self.memory.adopt(text, token, responses, is_over=is_renewed)
        except AnsweredOtherwise:
            if (changed := self.memory.without_repeats(text)) is not None:
                self._release_notes = {MEMORY_NOTE: self._seal(changed, MEMORY_NOTE)}
            raise
        except TokenRejected as error:
            raise IntentUnreadable(self.owner) from error

    async def _claim_formers(self, adopted: Adopted, token: Journal | None, responses: Responses) -> Any:
        """Claim the calls that began at a build without intents. If such a call has run, record its end, and return its
        result.

        Raises:
            BodyNotRun: A call cannot be claimed.
            Exception: The error of the earlier run.
        """
        calls: dict[str, tuple[Journal, Responses]] = {}
        if adopted.journal is not None and self.memory.is_former:
            calls[adopted.journal.call_id] = adopted.journal, adopted.responses
        if token is not None and (token.call_id in calls or token.chain is Chain.NONE):
            calls[token.call_id] = token, responses
        for call_id, (journal, given) in calls.items():
            former = self.former_claim(call_id)
            self._formers.append(former)
            if (found := await self._claim_former(former, journal, given)) is not None:
                return found
        return None

    async def _claim_former(self, former: LedgerClaim, journal: Journal, responses: Responses) -> Any:
        try:
            found = await former.begin(answers_digest(journal, responses), at_once=False, remember=lambda: journal)
        except Exception as error:
            if isinstance(error, BodyNotRun) and not isinstance(error, OutcomeUnknown):
                await self.release()
                raise
            await self._end_as(None if isinstance(error, OutcomeUnknown) else error)
            raise
        if found is not None:
            await self._end_as(found)
        return found

    async def _end_as(self, outcome: Any) -> None:
        await self._claim(tentative=False)
        self.is_over = True
        await super().record(outcome)

    @override
    async def begin(self, terms: str, *, at_once: bool, remember: Callable[[], Journal]) -> None:
        # The intent was claimed before the leg began.
        self._remember = remember

    @override
    async def start_body(self) -> None:
        if self.memory.has_news and self._remember is not None:
            # Otherwise a run after a crash would ask again, and would not find the steps of this run.
            self._claim_notes = self._note_of(self.memory.text_of(self._remember()))
        await super().start_body()
        for former in self._formers:
            await former.start_body()

    @override
    async def record(self, outcome: Any) -> None:
        reruns = self.policy.on_failure == "rerun"
        if isinstance(outcome, Exception) and reruns and not isinstance(outcome, CallTakenOver):
            await self.release()
            return
        self.is_over = True
        self.keep = self.kept_for
        await super().record(outcome)
        for former in self._formers:
            await former.record(outcome)

    @override
    async def suspend(self, computed: Iterable[NotedValue]) -> None:
        # The claim is released by `leave`, together with the journal that the leg writes at its end.
        pass

    @override
    async def decline(self, reason: str) -> None:
        self.is_over = True
        self.keep = max(self.keep, self.policy.declined_for)
        text = self._seal(json.dumps({"declined": reason, "call": self.call_id}), "result")
        await self._settle_or_defer(text, "save the user's decline", declined_for=self.policy.declined_for)
        for former in self._formers:
            await former.release()

    @override
    async def release(self) -> None:
        self.is_over = True
        await super().release()
        for former in self._formers:
            await former.release()

    async def park(self) -> None:
        """Save the journal, and keep the claim until the call is stored. If the body may begin before that, record that
        it begins.

        Raises:
            LedgerUnavailable: The ledger is down.
            StillRunning: Another leg has taken over the claim.
        """
        if self._remember is None:
            return
        self._claim_notes = self._note_of(self.memory.text_of(self._remember()))
        try:
            answer = await self._claim(tentative=not self.may_end_at_once)
        except LedgerDown as error:
            logger.error("%s", error)
            raise LedgerUnavailable(self.owner) from error
        if answer.status is not ClaimStatus.GRANTED:
            raise StillRunning(self.owner)

    async def leave(self) -> None:
        """Save the journal of a leg that has asked, and release the claim.

        Raises:
            LedgerUnavailable: The ledger is down.
        """
        if self._remember is not None and (text := self.memory.after(self._remember())) is not None:
            # The journal has the values of the steps, so their notes need no key any more.
            # Other callers cannot read the journal, so they need the notes.
            needless = self._note_names if self.policy.scope == "caller" else ()
            self._release_notes = {**dict.fromkeys(needless, ""), **self._note_of(text)}
        self.is_over = self._is_released = True
        self.close()
        try:
            await self._send_release()
        except LedgerDown as error:
            logger.error("%s could not save its journal: %s", self.owner, error)
            self._release_later()
            raise LedgerUnavailable(self.owner) from error
        except BaseException:
            self._release_later()
            raise
        for former in self._formers:
            await former.release()

    async def settle_stored(self, call_id: str) -> None:
        """Record that the call is stored. Later calls with the same intent join the stored call."""
        self.is_over = True
        self.keep = self.kept_for
        text = self._seal(json.dumps({"stored": call_id}), "result")
        await self._settle_or_defer(text, "save which stored call it has become")

    def _note_of(self, text: str) -> dict[str, str]:
        return {MEMORY_NOTE: self._seal(text, MEMORY_NOTE)}

    @override
    async def _send_release(self) -> None:
        await self.ledger.release(self.key, holder=self._holder, notes=self._release_notes)

    @override
    def _claim_options(self) -> dict[str, Any]:
        notes, self._claim_notes = self._claim_notes, {}
        return {"is_bound": True, "notes": notes, "voids": self.voids}

    @override
    def _described(self, outcome: dict[str, Any]) -> dict[str, Any]:
        at = iso_text(self.system.time())
        return {**outcome, "given": self.memory.given, "call": self.call_id, "at": at}

    @override
    def _open(self, stored: str, use: str, digest: str | None = None) -> str:
        try:
            return super()._open(stored, use, digest)
        except LedgerUnavailable as error:
            raise IntentUnreadable(self.owner) from error
