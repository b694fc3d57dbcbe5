"""Checking recorded calls against a server as it is now.

A call in flight over a deploy may be at any of its rounds. So each round is a check of its own: the new code is handed
the state that the old code wrote there, with the answers pinned to the wording they were given to, and the answers that
came next. The runtime itself decides which of them count. What comes back is answered once more as it was, until
something else happens, and that must be what happened then.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from roundtrip.checking.stage import Played, Stage, open_stage
from roundtrip.checking.verdicts import AskedAgain, Cause, Checked, Divergence, Turn
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import Action, Asked, Computed, Entry, Journal
from roundtrip.questions.wire import PendingQuestion
from roundtrip.server.rehearsal import End
from roundtrip.server.server import Server
from roundtrip.trace.reading.calls import TracedCall

__all__ = ["TIMEOUT", "check_calls"]

TIMEOUT: Final = 30.0
"""Seconds that a leg may take."""

_AGE: Final = 60.0

_CAUSES: Final = {
    Reason.REWORDED: Cause.REWORDED,
    Reason.SCHEMA_CHANGED: Cause.SCHEMA_CHANGED,
    Reason.RENAMED: Cause.RENAMED,
    Reason.INVALID: Cause.INVALID,
    Reason.OTHER_BUILD: Cause.INVALID,
}

_RAN = Turn("runs the body")


async def check_calls(
    server: Server[Any],
    calls: Iterable[TracedCall],
    tell: Callable[[Checked], None],
    *,
    now: float,
    seconds: float = TIMEOUT,
) -> None:
    """Find out what the server would make of recorded calls. It must not serve anybody else meanwhile.

    No body runs. Resolvers do, and what gates and enters them.

    Args:
        server: The server.
        calls: The calls.
        tell: Told of each call.
        now: The time, in seconds since the epoch.
        seconds: How long a leg may take.
    """
    async with open_stage(server, seconds=seconds) as stage:
        for call in calls:
            began = call.began
            checked = Checked(call.id, began.method if began is not None else "?", call.tool)
            if began is None and not call.servings:
                checked.not_replayed = "all that is known of it is a token that was refused"
            else:
                try:
                    await _Check(stage, recorded_call(call), checked, now).run()
                except NotReplayable as error:
                    checked.not_replayed = str(error)
            tell(checked)


class _Check:
    """One call being checked."""

    def __init__(self, stage: Stage, call: RecordedCall, checked: Checked, now: float) -> None:
        self._stage = stage
        self._call = call
        self._checked = checked
        self._now = now
        self._rounds = call.resolver_rounds

    async def run(self) -> None:
        """Check the call from its beginning, and from each of its rounds."""
        call, rounds = self._call, self._rounds
        if not rounds and call.ending is RoundEnding.UNKNOWN and not call.reached_body:
            raise NotReplayable("it ended before anything was asked, in a way that tells nothing of what it asks")
        for done in range(len(rounds) + 1):
            if done == len(rounds) and call.asked_by_body is None and call.ending is RoundEnding.WAITS:
                await self._check_waiting(rounds[-1])
            else:
                await self._check_after(done)
        by_body = call.asked_by_body
        if by_body is None:
            return
        if rounds:
            journal = self._journal(by_body, asked={}, entries=self._entries(rounds))
            await self._compare(len(rounds), await self._go_on(len(rounds), journal, ()))
        self._note(
            f"from round {by_body.number} on the body asks, which is not run: checked as far as its parameters go"
        )

    async def _check_after(self, done: int) -> None:
        """Check how the call goes on when some rounds are over and the answers to the last of them come in."""
        if not done:
            await self._compare(0, await self._go_on(0, None, ()))
            return
        round_ = self._rounds[done - 1]
        asked = {key: self._asked(question) for key, question in round_.questions.items()}
        journal = self._journal(round_, asked=asked, entries=self._entries(self._rounds[: done - 1]))
        await self._compare(done, await self._go_on(done, journal, [*round_.answers.values()]))

    async def _check_waiting(self, round_: RecordedRound) -> None:
        """Check that answers which are still to come would count."""
        asked = {key: self._asked(question) for key, question in round_.questions.items()}
        journal = self._journal(round_, asked=asked, entries=self._entries(self._rounds[:-1]))
        played = await self._go_on(len(self._rounds), journal, ())
        if played is None:
            return
        for waiting in played.questions:
            before = self._named(waiting, round_.questions)
            if before is not None and waiting.reason is not Reason.MISSING:
                self._again(waiting, before)
        self._diverge(round_.number, Turn("asks", tuple(round_.questions.values())), played)

    async def _go_on(self, done: int, journal: Journal | None, answers: Sequence[Answer]) -> Played | None:
        """Play legs until nothing comes back that was answered; None where it comes back in spite of its answer."""
        known = self._answers(self._rounds[:done])
        expected = frozenset[str](self._rounds[done].questions if done < len(self._rounds) else ())
        given: set[str] = set()
        named = False
        while True:
            played = await self._stage.leg(self._call, journal, answers)
            if played.unseen is not None:
                self._note(f"{played.unseen} is hidden from the check, which is nobody; who may see it is not checked")
            if played.end is End.ASKS and not played.questions and not named:
                # A body that must run once waits for the next leg, which brings nothing new.
                named, journal, answers = True, played.journal, ()
                continue
            back = [
                (waiting, answer)
                for waiting in played.questions
                if waiting.key not in expected and (answer := self._answer(waiting, known)) is not None
            ]
            if not back:
                return played
            for waiting, answer in back:
                if waiting.reason is not Reason.UNFINISHED:
                    self._again(waiting, answer.question)
                elif waiting.key in given or done == len(self._rounds):
                    self._note(
                        f"the page of {waiting.key!r} has to be visited: checked as far as agreeing to go there, in "
                        f"round {self._rounds[done - 1].number}"
                    )
                    return None
            fresh = [
                Answer(SeenQuestion(waiting.key, answer.question.kind, answer.question.message), *_said(answer))
                for waiting, answer in back
                if waiting.key not in given
            ]
            if not fresh:
                self._note(
                    "what follows an answer that is not valid any more was not checked: it was given in round "
                    f"{self._rounds[done - 1].number}"
                )
                return None
            given |= {answer.question.key for answer in fresh}
            journal, answers = played.journal, fresh

    async def _compare(self, done: int, played: Played | None) -> None:
        """Hold how the call would go on against how it went on."""
        if played is None:
            return
        number = (self._rounds[done - 1].number if done else 0) + 1
        if done < len(self._rounds):
            round_ = self._rounds[done]
            self._diverge(round_.number, Turn("asks", tuple(round_.questions.values())), played)
        elif self._call.reached_body:
            self._diverge(number, _RAN, played)
        elif self._call.ending is RoundEnding.DECLINED:
            self._diverge(number, Turn("refuses the call, as the user would not answer"), played)
        elif self._call.ending is RoundEnding.UNASKABLE:
            self._diverge(number, Turn("cannot ask a client that could answer what was recorded"), played)
        elif self._call.ending is RoundEnding.FAILED:
            self._diverge(number, Turn("fails"), played)

    def _diverge(self, number: int, expected: Turn, played: Played) -> None:
        actual = _turn(played)
        if expected.questions and actual.questions:
            if self._same_round(expected.questions, played.questions):
                return
        elif expected.questions and all(question.reason is Reason.INVALID for question in expected.questions):
            # What was no valid answer then is one now.
            if played.end in (End.ASKS, End.BODY):
                return
        elif not expected.questions and not actual.questions and expected.told == actual.told.partition(":")[0]:
            return
        self._checked.note_divergence(Divergence(number, expected, actual))

    def _same_round(self, expected: Sequence[SeenQuestion], actual: Sequence[PendingQuestion]) -> bool:
        """Whether the same is asked, whatever its order and wording: answers go by name, and later rounds tell."""
        missing = {question.key: question for question in expected}
        extra: list[PendingQuestion] = []
        for waiting in actual:
            names = [name for name in self._stage.names_of(self._call, waiting.key) if name in missing]
            if names:
                del missing[names[0]]
            else:
                extra.append(waiting)
        for waiting in extra:
            # Under another name. Whether answers find it shows when they come.
            same = [key for key, question in missing.items() if question.digests == _digests(waiting)]
            if not same:
                return all(question.reason is Reason.INVALID for question in expected)
            del missing[same[0]]
        return all(question.reason is Reason.INVALID for question in missing.values())

    def _again(self, waiting: PendingQuestion, before: SeenQuestion) -> None:
        cause = _CAUSES.get(waiting.reason, Cause.UNKNOWN)
        if waiting.reason is Reason.KEY_GONE:
            # The pin is this server's own, so something has changed, though its two plain bytes do not show it.
            cause = Cause.REWORDED if before.digests[1] == _digests(waiting)[1] else Cause.SCHEMA_CHANGED
        complaint = waiting.complaint if cause is Cause.INVALID else None
        self._checked.note_again(AskedAgain(cause, before, SeenQuestion.of(waiting), complaint))

    def _note(self, text: str) -> None:
        if text not in self._checked.notes:
            self._checked.notes.append(text)

    def _answer(self, waiting: PendingQuestion, known: Mapping[str, Answer]) -> Answer | None:
        """What was said to a question that comes back, under whichever of its names."""
        former = (waiting.former,) if waiting.former is not None else ()
        names = (*self._stage.names_of(self._call, waiting.key), *former)
        return next((known[name] for name in names if name in known), None)

    def _named(self, waiting: PendingQuestion, questions: Mapping[str, SeenQuestion]) -> SeenQuestion | None:
        former = (waiting.former,) if waiting.former is not None else ()
        names = (*self._stage.names_of(self._call, waiting.key), *former)
        return next((questions[name] for name in names if name in questions), None)

    def _answers(self, rounds: Sequence[RecordedRound]) -> dict[str, Answer]:
        """The answers that counted."""
        return {key: answer for round_ in rounds for key, answer in round_.answers.items() if answer.how == "taken"}

    def _entries(self, rounds: Sequence[RecordedRound]) -> dict[str, Entry]:
        """The answers that counted, as the journal had them."""
        return {
            key: Entry(answer.action, self._pin(answer.question), answer.data)
            for key, answer in self._answers(rounds).items()
            if answer.action is not None
        }

    def _asked(self, question: SeenQuestion) -> Asked:
        return Asked(self._pin(question), attempts=question.attempt - 1)

    def _pin(self, question: SeenQuestion) -> bytes:
        """The pin that the server, which has none of the recorded keys, would have made."""
        return self._stage.pinner.pin(self._call.id, *question.digests)

    def _journal(self, round_: RecordedRound, *, asked: Mapping[str, Asked], entries: Mapping[str, Entry]) -> Journal:
        """What the call remembered when a round of questions was out."""
        return Journal(
            call_id=self._call.id,
            born=self._now,
            deadline=self._now + _AGE,
            end=self._now + _AGE,
            leg=round_.leg,
            round=round_.number,
            # Whatever this build is called, it is not the one that asked.
            build=f"{self._call.build}, recorded",
            version=self._call.version,
            entries=entries,
            asked=asked,
            computed={key: Computed(value) for key, value in round_.computed.items()},
        )


def _digests(waiting: PendingQuestion) -> tuple[bytes, bytes]:
    return waiting.question.message, waiting.question.schema


def _said(answer: Answer) -> tuple[Action | None, Any, Any]:
    return answer.action, answer.how, answer.data


def _turn(played: Played) -> Turn:
    if played.end is End.ASKS:
        return Turn("asks", tuple(SeenQuestion.of(waiting) for waiting in played.questions))
    if played.end is End.BODY:
        return _RAN
    if played.end is End.DECLINED:
        return Turn(f"refuses the call, as the user would not answer: {played.told}")
    if played.end is End.REJECTED:
        return Turn(f"cannot ask a client that could answer what was recorded: {played.told}")
    if played.end is End.UNREACHED:
        return Turn(f"does not accept the call: {played.told}")
    return Turn(f"fails: {played.told}")
