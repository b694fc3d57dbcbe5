"""Checks of recorded calls against a server's current code.

During a deploy, a call may be at any round, so each round is checked separately. The new code receives the journal that
the old code wrote, with answers pinned to their recorded wording. It also receives the answers that the client sent
next. The runtime decides which answers count. If it asks an answered question again, the check repeats the recorded
answer. Then the first leg that does not repeat answered questions must match the record. A wait for approvals is also a
round. A recorded decision counts for its recorded wording and group.

If the body asked questions, it is replayed round by round with its recorded answers and step results, as in a fork. The
code after the body's last round is not replayed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from roundtrip.checking.recorded import (
    Answer,
    NotReplayable,
    RecordedCall,
    RecordedRound,
    RoundEnding,
    SeenQuestion,
    recorded_call,
    why_nothing_ran,
)
from roundtrip.checking.rehearsal import End, RehearsedLeg
from roundtrip.checking.replay_server import ReplayServer, open_replay_server
from roundtrip.checking.replaying import Replay, digests_of, is_worded_as, obstacle_at, whole_call
from roundtrip.checking.reports import AskedAgain, Cause, CheckResult, Divergence, Turn
from roundtrip.errors import NeedsTask
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import Journal
from roundtrip.questions.wire import ExternalQuestion, PendingQuestion
from roundtrip.server.attach import Attached
from roundtrip.trace.reading.calls import TracedCall

TIMEOUT: Final = 30.0
"""Time limit of a leg, in seconds."""

_CAUSES: Final = {
    Reason.REWORDED: Cause.REWORDED,
    Reason.SCHEMA_CHANGED: Cause.SCHEMA_CHANGED,
    Reason.RENAMED: Cause.RENAMED,
    Reason.INVALID: Cause.INVALID,
    Reason.OTHER_BUILD: Cause.INVALID,
}

_RUNS_BODY = Turn("runs the body")
_WAITS_FOR_APPROVAL: Final = "waits for the approval"
_END_TEXTS: Final = {
    End.DECLINED: "declines the call, because the user gave no answer",
    End.REJECTED: "cannot ask the client, although it could answer the recorded questions",
    End.UNREACHED: "does not accept the call",
    End.FAILED: "fails",
    End.COMPLETED: "runs to its end",
}
_WITHOUT_ANSWERS: Final = (RoundEnding.WAITS, RoundEnding.UNANSWERED)
_ENDINGS: Final = {
    RoundEnding.DECLINED: End.DECLINED,
    RoundEnding.UNASKABLE: End.REJECTED,
    RoundEnding.FAILED: End.FAILED,
}


async def check_calls(
    server: Attached,
    calls: Iterable[TracedCall],
    report: Callable[[CheckResult], None],
    *,
    now: float,
    seconds: float = TIMEOUT,
) -> None:
    """Check recorded calls on a server. The server must not serve other clients during the check.

    The check runs resolvers, confirmations and context managers. If the body asked questions, the check also runs the
    body, up to its last recorded question.

    Args:
        server: The server.
        calls: The calls.
        report: A callback that receives each call's result.
        now: The time, in seconds since the epoch.
        seconds: The time limit of a leg.
    """
    async with open_replay_server(server, seconds=seconds) as replay_server:
        for call in calls:
            began = call.began
            if why_nothing_ran(call) is not None:
                continue
            if not call.servings or (began is not None and (began.within is not None or began.era == "direct")):
                # No client is waiting for this call: its token was rejected, or the server made the call.
                continue
            checked = CheckResult(call.id, began.method if began is not None else "?", call.tool)
            try:
                if call.is_unknown:
                    raise NotReplayable("its process died while the body was running; a replay cannot reproduce that")
                recorded = recorded_call(call)
                await _Check(replay_server, recorded, checked, now).run()
                if recorded.asked_by_body is not None and not checked.divergences:
                    await _BodyCheck(replay_server, call, checked, now).run()
            except NotReplayable as error:
                checked.not_checked = str(error)
            report(checked)


class _Check(Replay):
    """Check of one call's parameters."""

    def __init__(self, server: ReplayServer, call: RecordedCall, checked: CheckResult, now: float) -> None:
        super().__init__(server, call, call.resolver_rounds, now, "stop")
        self._checked = checked

    async def run(self) -> None:
        """Check the call from its start, and then again from each round that comes before the tool's body."""
        call, rounds = self.call, self.rounds
        if not rounds and call.ending is RoundEnding.UNKNOWN and not call.reached_body:
            raise NotReplayable("it ended before its first question, so its questions are unknown")
        for done in range(len(rounds) + 1):
            if done == len(rounds) and call.asked_by_body is None and call.ending in _WITHOUT_ANSWERS:
                await self._check_waiting(rounds[-1])
            else:
                await self._check_after(done)

    async def _check_after(self, done: int) -> None:
        """Replay the call after its first `done` rounds. Compare what it does next with the record."""
        number, journal, answers = 1, None, list[Answer]()
        if done:
            # Play the leg that delivers the answers to the last finished round.
            last = self.rounds[done - 1]
            number, journal, answers = last.number + 1, self.journal_for(last, done - 1), [*last.answers.values()]
        leg = await self._play(done, journal, answers)
        if leg is None:
            return
        if done < len(self.rounds):
            round_ = self.rounds[done]
            self._compare_turn(round_.number, _recorded_turn(round_), leg)
        elif self.call.reached_body:
            self._compare_turn(number, _RUNS_BODY, leg)
        elif self.call.ending in _ENDINGS:
            self._compare_turn(number, Turn(_END_TEXTS[_ENDINGS[self.call.ending]]), leg)

    async def _check_waiting(self, round_: RecordedRound) -> None:
        """Check that answers to the open round would count."""
        journal = self.journal_for(round_, len(self.rounds) - 1)
        leg = await self._play(len(self.rounds), journal, ())
        if leg is None:
            return
        for waiting in leg.questions:
            before = self.find_record(waiting, round_.questions)
            if before is not None and waiting.reason is not Reason.MISSING:
                self._note_again(waiting, before)
        for waiting in leg.approvals:
            before = self.find_record(waiting, round_.approvals)
            if before is not None and before.digests != digests_of(waiting):
                self._note_again(waiting, before)
        self._compare_turn(round_.number, _recorded_turn(round_), leg)

    async def _play(self, done: int, journal: Journal | None, answers: Sequence[Answer]) -> RehearsedLeg | None:
        """Play legs until no answered question is asked again.

        Return None if a question's recorded answer no longer settles that question, because the check must stop there.
        """
        known, self.decisions = self.answers_before(done), self.decisions_before(done)
        approved = {key: approval for round_ in self.rounds[:done] for key, approval in round_.approvals.items()}
        expected = frozenset[str](self.rounds[done].questions if done < len(self.rounds) else ())
        repeated: set[str] = set()
        while True:
            leg = await self.play_leg(journal, answers)
            if leg.hidden_item is not None:
                self._note(f"{leg.hidden_item} is hidden here, because no user is authenticated; it was checked anyway")
            open_again = [
                (waiting, state)
                for waiting in leg.approvals
                if waiting.key not in repeated and (state := self.find_record(waiting, self.decisions)) is not None
            ]
            for waiting, state in open_again:
                # The group must decide again. The check continues with the same decision on the new wording.
                if (before := self.find_record(waiting, approved)) is not None:
                    self._note_again(waiting, before)
                self.decisions[waiting.key] = state._replace(pin=waiting.question.message.hex())
                repeated.add(waiting.key)
            if open_again:
                journal, answers = leg.journal, ()
                continue
            back = [
                (waiting, answer)
                for waiting in leg.questions
                if waiting.key not in expected and (answer := self.find_record(waiting, known)) is not None
            ]
            if not back:
                return leg
            for waiting, answer in back:
                if waiting.reason is not Reason.UNFINISHED:
                    self._note_again(waiting, answer.question)
                elif waiting.key in repeated or done == len(self.rounds):
                    self._checked.not_checked = (
                        f"a check cannot visit the page of {waiting.key!r}, so it ends where the user consents, in "
                        f"round {self.rounds[done - 1].number}"
                    )
                    return None
            fresh = [
                replace(answer, question=replace(answer.question, key=waiting.key))
                for waiting, answer in back
                if waiting.key not in repeated
            ]
            if not fresh:
                self._note(
                    f"an answer from round {self.rounds[done - 1].number} is no longer valid, so the check stops there"
                )
                return None
            repeated |= {answer.question.key for answer in fresh}
            journal, answers = leg.journal, fresh

    def _compare_turn(self, number: int, expected: Turn, leg: RehearsedLeg) -> None:
        actual = _turn_of(leg)
        if expected.questions and actual.questions:
            if expected.text == actual.text and self._same_round(expected.questions, leg.questions or leg.approvals):
                return
        elif expected.questions and all(question.reason is Reason.INVALID for question in expected.questions):
            # An answer that was invalid when it was recorded is valid now.
            if leg.end in (End.ASKS, End.BODY):
                return
        elif not expected.questions and not actual.questions and expected.text == actual.text.partition(":")[0]:
            return
        self._checked.note_divergence(Divergence(number, expected, actual))

    def _same_round(self, expected: Sequence[SeenQuestion], actual: Sequence[PendingQuestion]) -> bool:
        """Return True if both rounds ask questions with the same names. A changed wording is detected when the answers
        arrive.
        """
        pairs, extra = self._paired(expected, actual)
        paired = [before.key for _, before in pairs]
        missing = [question for question in expected if extra or question.key not in paired]
        return all(question.reason is Reason.INVALID for question in missing)

    def _paired(
        self, expected: Sequence[SeenQuestion], actual: Sequence[PendingQuestion]
    ) -> tuple[list[tuple[PendingQuestion, SeenQuestion]], list[PendingQuestion]]:
        """Pair questions with recorded questions, first by name and then by wording. Also return the unpaired
        questions.
        """
        missing = {question.key: question for question in expected}
        pairs: list[tuple[PendingQuestion, SeenQuestion]] = []
        unnamed: list[PendingQuestion] = []
        extra: list[PendingQuestion] = []
        for waiting in actual:
            name = next((name for name in waiting.names if name in missing), None)
            pairs.append((waiting, missing.pop(name))) if name is not None else unnamed.append(waiting)
        for waiting in unnamed:
            # The question may have a new name.
            same = next((key for key, question in missing.items() if is_worded_as(question, waiting)), None)
            pairs.append((waiting, missing.pop(same))) if same is not None else extra.append(waiting)
        return pairs, extra

    def _note_again(self, waiting: PendingQuestion, before: SeenQuestion) -> None:
        is_external = isinstance(waiting.question, ExternalQuestion)
        cause = Cause.REWORDED if is_external else _CAUSES.get(waiting.reason, Cause.UNKNOWN)
        if waiting.reason is Reason.KEY_GONE:
            # The check made the pin with this server's key, so the question must have changed, even if the pin's two
            # unkeyed bytes are the same.
            cause = _difference(waiting, before)
        complaint = waiting.complaint if cause is Cause.INVALID else None
        self._checked.note_again(AskedAgain(cause, before, SeenQuestion.of(waiting), complaint))

    def _note(self, text: str) -> None:
        if text not in self._checked.notes:
            self._checked.notes.append(text)


class _BodyCheck(_Check):
    """Check of a body that asked questions, round by round."""

    def __init__(self, server: ReplayServer, traced: TracedCall, checked: CheckResult, now: float) -> None:
        super().__init__(server, whole_call(traced), checked, now)
        self.bodies = "to_step"
        self.rounds = [round_ for round_ in self.rounds if round_.questions or round_.approvals]
        self._body_rounds = [round_ for round_ in self.call.rounds if round_.by != "resolvers"]
        self._steps = {
            step.key
            for serving in traced.servings
            for line in serving.happened
            for step in line.steps
            if step.value is not None
        }

    async def run(self) -> None:
        """Replay the body up to its last round, or to the first round that cannot be replayed."""
        done = len(self.rounds)
        leg: RehearsedLeg | None = None
        before: RecordedRound | None = None
        for round_ in self._body_rounds:
            if (obstacle := obstacle_at(round_)) is not None:
                return self._give_up(round_, obstacle)
            if before is None:
                leg = await self._play(done, self.journal_for(round_, done), ())
            elif leg is not None:
                leg = await self.play_next_leg(leg, before, round_)
            if leg is None:
                return self._give_up(round_, "an earlier answer is no longer valid")
            before = self._compare(round_, leg)
            if before is None:
                return None
        return None

    def _compare(self, round_: RecordedRound, leg: RehearsedLeg) -> RecordedRound | None:
        """Compare a leg's questions with a round. Return the round with current names, or None to stop the replay."""
        expected = _recorded_turn(round_)
        if leg.is_withheld:
            return self._give_up(round_, "the body must run only once, so a check does not start it")
        if leg.end is End.STEP and not (leg.step in self._steps and leg.step not in round_.computed):
            return self._give_up(round_, f"the body reaches the step {leg.step!r}, which has no recorded result")
        if leg.end is End.FAILED and leg.reason.startswith(f"{NeedsTask.__name__}:"):
            return self._give_up(round_, "the body uses features that only tasks have")
        pairs, extra = self._paired(expected.questions, leg.questions or leg.approvals)
        # In the live era, a round's questions were asked one by one.
        later = {key for other in self._body_rounds for key in (*other.questions, *other.approvals)}
        is_early = self.call.era == "live" and all(waiting.key in later for waiting in extra)
        if leg.end is not End.ASKS or len(pairs) < len(expected.questions) or (extra and not is_early):
            self._checked.note_divergence(Divergence(round_.number, expected, _turn_of(leg)))
            return None
        answers = dict[str, Answer]()
        for waiting, before in pairs:
            is_renamed = before.key not in waiting.names
            if is_renamed or not is_worded_as(before, waiting):
                cause = Cause.RENAMED if is_renamed else _difference(waiting, before)
                self._checked.note_again(AskedAgain(cause, before, SeenQuestion.of(waiting)))
            answer = round_.answers.get(before.key)
            # Leave out an answer that did not count when it was recorded. If such an answer counts now, the body would
            # run past the recorded rounds.
            if answer is not None and answer.how == "taken":
                answers[waiting.key] = answer
        decisions = {
            waiting.key: round_.decisions[before.key] for waiting, before in pairs if before.key in round_.decisions
        }
        return replace(round_, answers=answers, decisions=decisions)

    def _give_up(self, round_: RecordedRound, reason: str) -> None:
        self._checked.not_checked = f"the body's questions from round {round_.number} on: {reason}"


def _difference(waiting: PendingQuestion, before: SeenQuestion) -> Cause:
    return Cause.REWORDED if before.digests[1] == digests_of(waiting)[1] else Cause.SCHEMA_CHANGED


def _recorded_turn(round_: RecordedRound) -> Turn:
    if round_.approvals:
        return Turn(_WAITS_FOR_APPROVAL, tuple(round_.approvals.values()))
    return Turn("asks", tuple(round_.questions.values()))


def _turn_of(leg: RehearsedLeg) -> Turn:
    if leg.end is End.ASKS:
        asked = tuple(SeenQuestion.of(waiting) for waiting in leg.approvals or leg.questions)
        return Turn(_WAITS_FOR_APPROVAL if leg.approvals else "asks", asked)
    if leg.end is End.STEP:
        return Turn(f"runs the step {leg.step!r}")
    if leg.end is End.BODY:
        return _RUNS_BODY
    return Turn(f"{_END_TEXTS[leg.end]}: {leg.reason}" if leg.reason else _END_TEXTS[leg.end])
