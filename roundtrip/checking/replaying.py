"""Rebuild the journals of a recorded call, so that the code of a server as it is now goes on from any of its rounds."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from roundtrip.checking.recorded import Answer, RecordedCall, RecordedRound, SeenQuestion
from roundtrip.checking.stage import Stage
from roundtrip.machine.journal import Asked, Computed, Entry, Journal
from roundtrip.questions.approvals import ApprovalState
from roundtrip.questions.wire import PendingQuestion

__all__ = ["Replay", "digests_of"]

T = TypeVar("T")

_MAX_AGE_SECONDS: Final = 60.0


class Replay:
    """A recorded call on a stage.

    Args:
        stage: Serves its legs.
        call: The call.
        rounds: Those of its rounds that are played.
        now: The time, in seconds since the epoch.
    """

    def __init__(self, stage: Stage, call: RecordedCall, rounds: Sequence[RecordedRound], now: float) -> None:
        self.stage = stage
        self.call = call
        self.rounds = rounds
        self._now = now

    def record_of(self, waiting: PendingQuestion, recorded: Mapping[str, T]) -> T | None:
        """Return the record of a question that is asked again, under any of its names."""
        return next((recorded[name] for name in self.names_of(waiting) if name in recorded), None)

    def names_of(self, waiting: PendingQuestion) -> tuple[str, ...]:
        """Return the name of a question, and its former names."""
        former = (waiting.former,) if waiting.former is not None else ()
        return (*self.stage.names_of(self.call, waiting.key), *former)

    def answers(self, done: int) -> dict[str, Answer]:
        """Return the answers that counted in the first `done` rounds."""
        rounds = self.rounds[:done]
        return {key: answer for round_ in rounds for key, answer in round_.answers.items() if answer.how == "taken"}

    def decided(self, done: int) -> dict[str, ApprovalState]:
        """Return the decisions that came in the first `done` rounds, by the names of their approvals."""
        decided: dict[str, ApprovalState] = {}
        for round_ in self.rounds[:done]:
            for key, approval in round_.approvals.items():
                decided.pop(key, None)
                if key in round_.decisions:
                    decided[key] = ApprovalState("recorded", approval.digests[0].hex(), round_.decisions[key])
        return decided

    def _pin(self, question: SeenQuestion) -> bytes:
        """Make the pin with this server's key, as it has none of the recorded keys."""
        return self.stage.pinner.pin(self.call.id, *question.digests)

    def journal(self, round_: RecordedRound, done: int) -> Journal:
        """Rebuild the journal of a round of questions, with the answers of the rounds done before."""
        return Journal(
            call_id=self.call.id,
            born=self._now,
            deadline=self._now + _MAX_AGE_SECONDS,
            end=self._now + _MAX_AGE_SECONDS,
            leg=round_.leg,
            round=round_.number,
            # Never the name of the current build, which did not ask.
            build=f"{self.call.build}, recorded",
            version=self.call.version,
            entries={
                key: Entry(answer.action, self._pin(answer.question), answer.data)
                for key, answer in self.answers(done).items()
                if answer.action is not None
            },
            asked={
                key: Asked(self._pin(question), attempts=question.attempt - 1)
                for key, question in round_.questions.items()
            },
            computed={key: Computed(value) for key, value in round_.computed.items()},
        )


def digests_of(waiting: PendingQuestion) -> tuple[bytes, bytes]:
    """Return the digests of a question's message and schema."""
    return waiting.question.message, waiting.question.schema
