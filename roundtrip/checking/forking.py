"""Forks of recorded calls: replay a call on a server's current code up to a round, then give different answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, cast

from pydantic import BaseModel, JsonValue

from roundtrip.approvals.markers import ApprovalState
from roundtrip.checking.recorded import Answer, NotReplayable, RecordedCall, RecordedRound, SeenQuestion
from roundtrip.checking.rehearsal import Bodies, End, RehearsedLeg
from roundtrip.checking.replay_server import ReplayServer, open_replay_server
from roundtrip.checking.replaying import Replay, is_worded_as, names_of, obstacle_at, whole_call
from roundtrip.client.legs import within
from roundtrip.errors import Decision
from roundtrip.machine.journal import Action
from roundtrip.questions.wire import PendingQuestion
from roundtrip.server.attach import Attached
from roundtrip.trace.reading.calls import TracedCall

_MAX_LEGS: Final = 200


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """An answer, or a decision on an approval, that the fork uses in place of the recorded one."""

    action: Action
    data: JsonValue = None
    """For a form, its content or the value of its only field. For a question to a model, the text. For an approval, the
    reason.
    """
    text: str | None = None
    """The data as the user typed it, for text fields."""
    decision: Decision | None = None
    """The recorded approval decision."""


@dataclass(slots=True)
class ForkedRound:
    """One round of the fork."""

    number: int
    questions: tuple[SeenQuestion, ...]
    replies: dict[str, OwnAnswer] = field(default_factory=dict[str, OwnAnswer])
    own: set[str] = field(default_factory=set[str])
    """The names of questions that got the fork's own answers. All other questions got the recorded answers."""
    complaints: dict[str, str] = field(default_factory=dict[str, str])
    """For each question that is asked again, by name: the error in its previous answer."""


@dataclass(slots=True)
class Fork:
    """A fork of a call, from the round at which the fork starts."""

    recorded: RecordedCall
    at: int
    rounds: list[ForkedRound] = field(default_factory=list[ForkedRound])
    end: End = End.UNREACHED
    step: str = ""
    """The first unrecorded step, if the fork ends there."""
    reason: str = ""
    result: BaseModel | None = None
    unused: list[str] = field(default_factory=list[str])
    """Names of the fork's answers whose questions were never asked."""
    differs: str = ""
    """Why the current code does not reach the round as recorded; empty if it reaches the round."""


async def fork_call(
    server: Attached,
    traced: TracedCall,
    *,
    at: int,
    replies: Mapping[str, OwnAnswer],
    run: bool,
    now: float,
    seconds: float,
) -> Fork:
    """Fork a call on a server. The server must not serve other clients during the fork.

    Args:
        server: The server.
        traced: The call.
        at: The number of the round at which the fork starts.
        replies: The fork's answers, by question name.
        run: True to run the body and its steps to the end. Otherwise, the fork ends at an unrecorded step.
        now: The time, in seconds since the epoch.
        seconds: The time limit of a leg.

    Raises:
        NotReplayable: The call cannot be forked at this round.
    """
    call = whole_call(traced)
    for obstacle in filter(None, map(obstacle_at, call.rounds)):
        raise NotReplayable(obstacle)

    async def fork(replay_server: ReplayServer) -> Fork:
        return await _ForkReplay(replay_server, call, now, replies, "run" if run else "to_step").fork(at)

    return await within(open_replay_server(server, seconds=seconds), fork)


class _ForkReplay(Replay):
    """A replay that builds one fork."""

    def __init__(
        self, server: ReplayServer, call: RecordedCall, now: float, replies: Mapping[str, OwnAnswer], bodies: Bodies
    ) -> None:
        asked = [round_ for round_ in call.rounds if round_.questions or round_.approvals]
        super().__init__(server, call, asked, now, "repeat")
        self._replies = replies
        self._fork_bodies: Bodies = bodies
        self._used: set[str] = set()

    async def fork(self, at: int) -> Fork:
        """Replay the call up to a round, and continue with the fork's answers."""
        index = next((index for index, round_ in enumerate(self.rounds) if round_.number == at), None)
        if index is None:
            numbers = ", ".join(str(round_.number) for round_ in self.rounds) or "none"
            raise NotReplayable(f"it has no round {at} with questions; its rounds are: {numbers}")
        fork = Fork(self.call, at)
        leg = await self._replay_to(index)
        fork.differs = _difference(self.rounds[index], leg, is_live=self.call.era == "live")
        asked_names = {name for waiting in (*leg.questions, *leg.approvals) for name in names_of(waiting)}
        if self._replies and not fork.differs and not asked_names & self._replies.keys():
            names = ", ".join(sorted(map(repr, self._replies)))
            raise NotReplayable(f"round {at} asks {', '.join(sorted(map(repr, asked_names)))}, not {names}")
        self.bodies = self._fork_bodies
        await self._continue(fork, leg, at)
        fork.unused = sorted(self._replies.keys() - self._used)
        return fork

    async def _replay_to(self, index: int) -> RehearsedLeg:
        """Play all legs up to the leg that asks a round. Use the recorded answers and step results."""
        first = self.rounds[0]
        # Step results must come from a token, so start as if an earlier round without questions had created a token.
        start = replace(self.journal_for(first, 0), leg=1, round=first.number - 1, asked={}) if first.computed else None
        leg = await self.play_leg(start, ())
        for before, asked in pairwise(self.rounds[: index + 1]):
            if leg.end is not End.ASKS or leg.journal is None:
                return leg
            leg = await self.play_next_leg(leg, before, asked)
        return leg

    async def _continue(self, fork: Fork, leg: RehearsedLeg, number: int) -> None:
        for _ in range(_MAX_LEGS):
            fork.end, fork.step, fork.reason, fork.result = leg.end, leg.step, leg.reason, leg.result
            if leg.end is not End.ASKS:
                return
            pending = leg.questions or leg.approvals
            round_ = ForkedRound(number, tuple(SeenQuestion.of(waiting) for waiting in pending))
            round_.complaints = {waiting.key: waiting.complaint for waiting in pending if waiting.complaint is not None}
            fork.rounds.append(round_)
            for waiting in pending:
                self._reply(waiting, round_)
            continues = (self._replies or self.bodies == "run") and not fork.differs
            if not continues or round_.replies.keys() != {waiting.key for waiting in pending}:
                return
            for waiting in leg.approvals:
                self.decisions[waiting.key] = self._decision(waiting, round_.replies[waiting.key])
            answers = [_answer(waiting, round_.replies[waiting.key]) for waiting in leg.questions]
            leg = await self.play_leg(leg.journal, answers)
            number += 1
        raise NotReplayable(f"the fork exceeds {_MAX_LEGS} rounds")

    def _reply(self, waiting: PendingQuestion, round_: ForkedRound) -> None:
        """Answer a question once. Use the fork's answer, or else the recorded answer if the question is the same."""
        own = next((name for name in names_of(waiting) if name in self._replies), None)
        name = waiting.key if own is None else own
        reply = None if name in self._used else self._recorded_reply(waiting) if own is None else self._replies[own]
        if reply is None:
            return
        self._used.add(name)
        round_.replies[waiting.key] = reply
        if own is not None:
            round_.own.add(waiting.key)

    def _recorded_reply(self, waiting: PendingQuestion) -> OwnAnswer | None:
        """Return the recorded answer if the question has the recorded wording, else None."""
        for round_ in reversed(self.rounds):
            answer = self.find_record(waiting, round_.answers)
            if answer is not None and answer.how == "taken" and answer.action is not None:
                return OwnAnswer(answer.action, answer.data) if is_worded_as(answer.question, waiting) else None
            approval = self.find_record(waiting, round_.approvals)
            decision = self.find_record(waiting, round_.decisions)
            if decision is not None and approval is not None and is_worded_as(approval, waiting):
                accepted = decision.outcome == "approved"
                return OwnAnswer(Action.ACCEPT if accepted else Action.DECLINE, decision.reason, decision=decision)
        return None

    def _decision(self, waiting: PendingQuestion, reply: OwnAnswer) -> ApprovalState:
        """Return the state of a decided approval. The decision is the recorded one, or was made by a person named
        "fork".
        """
        decision = reply.decision
        if decision is None and reply.text is not None:
            raise NotReplayable(f"{waiting.key!r} is an approval; answer it with :approve or :reject REASON")
        if decision is None:
            outcome = "approved" if reply.action is Action.ACCEPT else "rejected"
            reason = reply.data if isinstance(reply.data, str) else None
            decision = Decision(outcome, datetime.fromtimestamp(self._now, UTC), "fork", reason)
        return ApprovalState("forked", waiting.question.message.hex(), decision)


def _answer(waiting: PendingQuestion, reply: OwnAnswer) -> Answer:
    question = SeenQuestion.of(waiting)
    data = _content(question, reply) if reply.action is Action.ACCEPT else None
    return Answer(question, reply.action, "taken", data)


def _content(question: SeenQuestion, reply: OwnAnswer) -> JsonValue:
    """Return an answer in the form in which a client sends it.

    Raises:
        NotReplayable: The form has several fields, so its answer must be an object.
    """
    data = reply.data
    if question.kind == "sample" and isinstance(data, str):
        return {"role": "assistant", "model": "fork", "content": {"type": "text", "text": data}}
    if question.kind == "form" and data is None:
        # Return the content that is sent when a user submits the form unchanged.
        return {}
    if question.kind != "form" or isinstance(data, dict):
        return data
    fields: dict[str, Any] = (question.form or {}).get("properties", {})
    if len(fields) != 1:
        named = ", ".join(f'"{name}": ...' for name in fields)
        raise NotReplayable(f"the answer to {question.key!r} must be an object with the form's fields: {{{named}}}")
    ((name, shape),) = fields.items()
    is_text = isinstance(shape, dict) and cast("dict[str, Any]", shape).get("type") == "string"
    return {name: reply.text if is_text and reply.text is not None and not isinstance(data, str) else data}


def _difference(round_: RecordedRound, leg: RehearsedLeg, *, is_live: bool) -> str:
    expected = {*round_.questions, *round_.approvals}
    asked = {waiting.key for waiting in (*leg.questions, *leg.approvals)}
    if leg.end is not End.ASKS:
        return f"the current code does not ask that round's questions: {leg.reason or leg.end.value}"
    # In the live era, a round's questions are asked one by one.
    if expected == asked or (is_live and expected < asked):
        return ""
    return f"the current code asks {', '.join(sorted(asked))}, not {', '.join(sorted(expected))}"
