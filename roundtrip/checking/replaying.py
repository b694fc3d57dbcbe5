"""Replay of a recorded call. Rebuilt journals let the server's current code continue from any round."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from roundtrip.approvals.markers import ApprovalState
from roundtrip.checking.recorded import Answer, NotReplayable, RecordedCall, RecordedRound, SeenQuestion, recorded_call
from roundtrip.checking.rehearsal import Bodies, End, RehearsedLeg
from roundtrip.checking.replay_server import ReplayServer
from roundtrip.machine.journal import Asked, Computed, Entry, Journal
from roundtrip.questions.wire import PendingQuestion
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.lines import Digested, Recorded

T = TypeVar("T")

_MAX_AGE_SECONDS: Final = 60.0


class Replay:
    """A recorded call that can be replayed on the current server.

    Args:
        server: The server that replays the legs.
        call: The call.
        rounds: The rounds to replay.
        now: The time, in seconds since the epoch.
        bodies: How far the body runs.
    """

    def __init__(
        self, server: ReplayServer, call: RecordedCall, rounds: Sequence[RecordedRound], now: float, bodies: Bodies
    ) -> None:
        self.server = server
        self.call = call
        self.rounds = rounds
        self.bodies: Bodies = bodies
        self.decisions: dict[str, ApprovalState] = {}
        """The approval decisions for the next leg, by approval name."""
        self._now = now

    def find_record(self, waiting: PendingQuestion, recorded: Mapping[str, T]) -> T | None:
        """Return the record of a question that is asked again. Look under all of the question's names; return None if
        none of them is recorded.
        """
        return next((recorded[name] for name in names_of(waiting) if name in recorded), None)

    def answers_before(self, done: int) -> dict[str, Answer]:
        """Return the answers that counted in the call's first `done` rounds."""
        rounds = self.rounds[:done]
        return {key: answer for round_ in rounds for key, answer in round_.answers.items() if answer.how == "taken"}

    def decisions_before(self, done: int) -> dict[str, ApprovalState]:
        """Return the decisions from the call's first `done` rounds, by approval name."""
        decisions: dict[str, ApprovalState] = {}
        for round_ in self.rounds[:done]:
            for key, approval in round_.approvals.items():
                decisions.pop(key, None)
                if key in round_.decisions:
                    decisions[key] = ApprovalState("recorded", approval.digests[0].hex(), round_.decisions[key])
        return decisions

    def _pin(self, question: SeenQuestion) -> bytes:
        """Compute a question's pin with this server's key, because the recorded key is not available."""
        return self.server.pinner.pin(self.call.id, *question.digests)

    def journal_for(self, round_: RecordedRound, done: int) -> Journal:
        """Rebuild a round's journal with the answers from the first `done` rounds."""
        return Journal(
            call_id=self.call.id,
            born=self._now,
            deadline=self._now + _MAX_AGE_SECONDS,
            end=self._now + _MAX_AGE_SECONDS,
            leg=round_.leg,
            round=round_.number,
            # This must differ from the current build's name, because the current build did not ask these questions.
            build=f"{self.call.build}, recorded",
            version=self.call.version,
            entries={
                key: Entry(answer.action, self._pin(answer.question), answer.data)
                for key, answer in self.answers_before(done).items()
                if answer.action is not None
            },
            asked={
                key: Asked(self._pin(question), attempts=question.attempt - 1)
                for key, question in round_.questions.items()
            },
            computed={key: Computed(value) for key, value in round_.computed.items()},
        )

    async def play_leg(self, journal: Journal | None, answers: Sequence[Answer]) -> RehearsedLeg:
        """Play one leg. If it only gives the call a token, as for an exactly-once tool, also play the next leg."""
        leg = await self.server.play_leg(self.call, journal, answers, self.decisions, self.bodies)
        if leg.end is End.ASKS and not leg.questions and not leg.approvals:
            leg = await self.server.play_leg(self.call, leg.journal, (), self.decisions, self.bodies)
        return leg

    async def play_next_leg(self, leg: RehearsedLeg, before: RecordedRound, asked: RecordedRound) -> RehearsedLeg:
        """Play the leg that delivers one round's recorded answers and decisions. This leg should then ask the next
        round.

        Args:
            leg: The leg that asked the earlier round.
            before: The earlier round.
            asked: The next round.
        """
        for waiting in leg.approvals:
            if (decision := self.find_record(waiting, before.decisions)) is not None:
                self.decisions[waiting.key] = ApprovalState("recorded", waiting.question.message.hex(), decision)
        pairs = [(waiting, self.find_record(waiting, before.answers)) for waiting in leg.questions]
        answers = [replace(answer, question=SeenQuestion.of(waiting)) for waiting, answer in pairs if answer]
        # Results of steps on this leg were recorded with the next round.
        computed = {key: Computed(value) for key, value in asked.computed.items()}
        journal = replace(leg.journal, computed=computed) if leg.journal is not None else None
        return await self.play_leg(journal, answers)


def whole_call(traced: TracedCall) -> RecordedCall:
    """Read a call for a replay of its body.

    Raises:
        NotReplayable: The transcript lacks something that the replay needs.
    """
    call = recorded_call(traced, whole=True)
    if any(isinstance(value, Digested) for value in _kept(traced)):
        raise NotReplayable('its step results are not revealed; record with reveal="all"')
    return call


def obstacle_at(round_: RecordedRound) -> str | None:
    """Return the reason that a body cannot be replayed past a round; None if it can be replayed."""
    if round_.by == "author":
        return "its function builds its questions by hand, so the answers are not recorded"
    if round_.by == "body" and not round_.questions and not round_.approvals:
        return "its task slept or waited for a signal, which a replay cannot repeat"
    return None


def _kept(traced: TracedCall) -> Iterator[Recorded | None]:
    """Yield the recorded step results and `remember=True` values."""
    for serving in traced.servings:
        for line in serving.happened:
            yield from (fixed.value for fixed in line.fixed)
            yield from (step.value for step in line.steps)


def names_of(waiting: PendingQuestion) -> tuple[str, ...]:
    """Return a question's name, its former names, and the name under which the server found the question's record."""
    return waiting.names if waiting.former is None else (*waiting.names, waiting.former)


def is_worded_as(before: SeenQuestion, waiting: PendingQuestion) -> bool:
    """Return True if a question has the recorded wording. A review's wording includes the answers in its form."""
    return before.digests in (digests_of(waiting), SeenQuestion.of(waiting).digests)


def digests_of(waiting: PendingQuestion) -> tuple[bytes, bytes]:
    """Return the digests of a question's message and schema."""
    return waiting.question.message, waiting.question.schema
