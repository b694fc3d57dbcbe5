"""Check recorded calls against the current code of a server.

During a deploy a call may be at any of its rounds, so each round is a check of its own. The new code receives the
journal that the old code wrote, with answers pinned to their recorded wording, and the answers that came next. The
runtime decides which of them count. If it asks an answered question again, the check gives the recorded answer again.
The first leg that asks other questions, or none, must match the record. A wait for approvals is a round, too, and the
recorded decisions count for their recorded wording and group.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from roundtrip.checking.recorded import (
    Answer,
    NotReplayable,
    RecordedCall,
    RecordedRound,
    RoundEnding,
    SeenQuestion,
    recorded_call,
)
from roundtrip.checking.replaying import Replay, digests_of
from roundtrip.checking.reports import AskedAgain, Cause, Checked, Divergence, Turn
from roundtrip.checking.stage import Stage, open_stage
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import Journal
from roundtrip.questions.wire import PendingQuestion
from roundtrip.server.adapters.installation import Installation
from roundtrip.server.rehearsal import End, Rehearsed
from roundtrip.server.server import Server
from roundtrip.trace.reading.calls import TracedCall

__all__ = ["TIMEOUT", "check_calls"]

TIMEOUT: Final = 30.0
"""Seconds that a leg may take."""

_CAUSES: Final = {
    Reason.REWORDED: Cause.REWORDED,
    Reason.SCHEMA_CHANGED: Cause.SCHEMA_CHANGED,
    Reason.RENAMED: Cause.RENAMED,
    Reason.INVALID: Cause.INVALID,
    Reason.OTHER_BUILD: Cause.INVALID,
}

_RAN = Turn("runs the body")
_WAITS: Final = "waits for the approval"
_ENDS: Final = {
    End.DECLINED: "declines the call, as the user gave no answer",
    End.REJECTED: "cannot ask a client that could answer the recorded questions",
    End.UNREACHED: "does not accept the call",
    End.FAILED: "fails",
}
_WITHOUT_ANSWERS: Final = (RoundEnding.WAITS, RoundEnding.UNANSWERED)
_ENDINGS: Final = {
    RoundEnding.DECLINED: End.DECLINED,
    RoundEnding.UNASKABLE: End.REJECTED,
    RoundEnding.FAILED: End.FAILED,
}


async def check_calls(
    server: Server[Any] | Installation[Any],
    calls: Iterable[TracedCall],
    report: Callable[[Checked], None],
    *,
    now: float,
    seconds: float = TIMEOUT,
) -> None:
    """Check recorded calls on a server, which must not serve other clients meanwhile.

    Resolvers, confirmations and context managers run; bodies do not.

    Args:
        server: The server.
        calls: The calls.
        report: Receives the result of each call.
        now: The time, in seconds since the epoch.
        seconds: The time limit of a leg.
    """
    async with open_stage(server, seconds=seconds) as stage:
        for call in calls:
            began = call.began
            checked = Checked(call.id, began.method if began is not None else "?", call.tool)
            if began is None and not call.servings:
                checked.not_replayed = "the transcripts have only a rejected token of it"
            else:
                try:
                    await _Check(stage, recorded_call(call), checked, now).run()
                except NotReplayable as error:
                    checked.not_replayed = str(error)
            report(checked)


class _Check(Replay):
    """The check of one call."""

    def __init__(self, stage: Stage, call: RecordedCall, checked: Checked, now: float) -> None:
        super().__init__(stage, call, call.resolver_rounds, now)
        self._checked = checked

    async def run(self) -> None:
        """Check the call from its beginning, and from each of its rounds."""
        call, rounds = self.call, self.rounds
        if not rounds and call.ending is RoundEnding.UNKNOWN and not call.reached_body:
            raise NotReplayable("it ended before its first question, so its questions are not known")
        for done in range(len(rounds) + 1):
            if done == len(rounds) and call.asked_by_body is None and call.ending in _WITHOUT_ANSWERS:
                await self._check_waiting(rounds[-1])
            elif done:
                # Play the leg that brings the answers of the last of these rounds.
                last = rounds[done - 1]
                await self._check_after(done, self.journal(last, done - 1), [*last.answers.values()])
            else:
                await self._check_after(0, None, ())
        by_body = call.asked_by_body
        if by_body is None:
            return
        if rounds:
            await self._check_after(len(rounds), self.journal(by_body, len(rounds)), ())
        self._note(f"the body asks from round {by_body.number} on, and was not run: only its parameters were checked")

    async def _check_after(self, done: int, journal: Journal | None, answers: Sequence[Answer]) -> None:
        """Compare the turn of the call after some rounds with the recorded turn."""
        played = await self._go_on(done, journal, answers)
        if played is None:
            return
        number = (self.rounds[done - 1].number if done else 0) + 1
        if done < len(self.rounds):
            round_ = self.rounds[done]
            self._diverge(round_.number, _recorded_turn(round_), played)
        elif self.call.reached_body:
            self._diverge(number, _RAN, played)
        elif self.call.ending in _ENDINGS:
            self._diverge(number, Turn(_ENDS[_ENDINGS[self.call.ending]]), played)

    async def _check_waiting(self, round_: RecordedRound) -> None:
        """Check that the answers of the open round would count."""
        journal = self.journal(round_, len(self.rounds) - 1)
        played = await self._go_on(len(self.rounds), journal, ())
        if played is None:
            return
        for waiting in played.questions:
            before = self.record_of(waiting, round_.questions)
            if before is not None and waiting.reason is not Reason.MISSING:
                self._again(waiting, before)
        for waiting in played.approvals:
            before = self.record_of(waiting, round_.approvals)
            if before is not None and before.digests != digests_of(waiting):
                self._again(waiting, before)
        self._diverge(round_.number, _recorded_turn(round_), played)

    async def _go_on(self, done: int, journal: Journal | None, answers: Sequence[Answer]) -> Rehearsed | None:
        """Play legs until no answered question is asked again; return None if an answer no longer settles its own."""
        known, decided = self.answers(done), self.decided(done)
        approved = {key: approval for round_ in self.rounds[:done] for key, approval in round_.approvals.items()}
        expected = frozenset[str](self.rounds[done].questions if done < len(self.rounds) else ())
        given: set[str] = set()
        named = False
        while True:
            played = await self.stage.leg(self.call, journal, answers, decided)
            if played.unseen is not None:
                self._note(
                    f"{played.unseen} is hidden in this process, where no user is authenticated; it was checked anyway"
                )
            if played.end is End.ASKS and not played.questions and not played.approvals and not named:
                # The empty round of a tool that runs exactly once: the next leg brings no answers.
                named, journal, answers = True, played.journal, ()
                continue
            open_again = [
                (waiting, state)
                for waiting in played.approvals
                if waiting.key not in given and (state := self.record_of(waiting, decided)) is not None
            ]
            for waiting, state in open_again:
                # The group has to decide again; the check goes on with the same decision about the new wording.
                if (before := self.record_of(waiting, approved)) is not None:
                    self._again(waiting, before)
                decided[waiting.key] = state._replace(pin=waiting.question.message.hex())
                given.add(waiting.key)
            if open_again:
                journal, answers = played.journal, ()
                continue
            back = [
                (waiting, answer)
                for waiting in played.questions
                if waiting.key not in expected and (answer := self.record_of(waiting, known)) is not None
            ]
            if not back:
                return played
            for waiting, answer in back:
                if waiting.reason is not Reason.UNFINISHED:
                    self._again(waiting, answer.question)
                elif waiting.key in given or done == len(self.rounds):
                    self._note(
                        f"the page of {waiting.key!r} must be visited: checked up to the consent to do so, in round "
                        f"{self.rounds[done - 1].number}"
                    )
                    return None
            fresh = [
                replace(answer, question=replace(answer.question, key=waiting.key))
                for waiting, answer in back
                if waiting.key not in given
            ]
            if not fresh:
                self._note(
                    "the check ends at an answer that is no longer valid: it was given in round "
                    f"{self.rounds[done - 1].number}"
                )
                return None
            given |= {answer.question.key for answer in fresh}
            journal, answers = played.journal, fresh

    def _diverge(self, number: int, expected: Turn, played: Rehearsed) -> None:
        actual = _turn(played)
        if expected.questions and actual.questions:
            if expected.text == actual.text and self._same_round(
                expected.questions, played.questions or played.approvals
            ):
                return
        elif expected.questions and all(question.reason is Reason.INVALID for question in expected.questions):
            # An answer that was invalid then is valid now.
            if played.end in (End.ASKS, End.BODY):
                return
        elif not expected.questions and not actual.questions and expected.text == actual.text.partition(":")[0]:
            return
        self._checked.note_divergence(Divergence(number, expected, actual))

    def _same_round(self, expected: Sequence[SeenQuestion], actual: Sequence[PendingQuestion]) -> bool:
        """Return True if the same names are asked; a changed wording is found when the answers arrive."""
        missing = {question.key: question for question in expected}
        extra: list[PendingQuestion] = []
        for waiting in actual:
            names = [name for name in self.stage.names_of(self.call, waiting.key) if name in missing]
            if names:
                del missing[names[0]]
            else:
                extra.append(waiting)
        for waiting in extra:
            # Asked under another name: the next check shows if its answer still counts.
            same = [key for key, question in missing.items() if question.digests == digests_of(waiting)]
            if not same:
                return all(question.reason is Reason.INVALID for question in expected)
            del missing[same[0]]
        return all(question.reason is Reason.INVALID for question in missing.values())

    def _again(self, waiting: PendingQuestion, before: SeenQuestion) -> None:
        cause = Cause.REWORDED if waiting.question.is_approval else _CAUSES.get(waiting.reason, Cause.UNKNOWN)
        if waiting.reason is Reason.KEY_GONE:
            # The pin is of this server's key, so the question has changed, even if the pin's two plain bytes have not.
            cause = Cause.REWORDED if before.digests[1] == digests_of(waiting)[1] else Cause.SCHEMA_CHANGED
        complaint = waiting.complaint if cause is Cause.INVALID else None
        self._checked.note_again(AskedAgain(cause, before, SeenQuestion.of(waiting), complaint))

    def _note(self, text: str) -> None:
        if text not in self._checked.notes:
            self._checked.notes.append(text)


def _recorded_turn(round_: RecordedRound) -> Turn:
    if round_.approvals:
        return Turn(_WAITS, tuple(round_.approvals.values()))
    return Turn("asks", tuple(round_.questions.values()))


def _turn(played: Rehearsed) -> Turn:
    if played.end is End.ASKS and played.approvals:
        return Turn(_WAITS, tuple(SeenQuestion.of(waiting) for waiting in played.approvals))
    if played.end is End.ASKS:
        return Turn("asks", tuple(SeenQuestion.of(waiting) for waiting in played.questions))
    return _RAN if played.end is End.BODY else Turn(f"{_ENDS[played.end]}: {played.reason}")
