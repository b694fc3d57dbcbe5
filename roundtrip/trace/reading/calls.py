"""Calls as their transcripts tell them: servings of legs, rounds of questions, and what became of them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from heapq import merge
from typing import Final

from roundtrip.errors import OutcomeUnknown
from roundtrip.machine.facts import Reason
from roundtrip.machine.table import Event, State
from roundtrip.trace.writing.lines import (
    ENDING_ACTIONS,
    ActedLine,
    AnsweredLine,
    AskedApproval,
    AskedLine,
    BeganLine,
    EndedLine,
    HandedLine,
    Line,
    Move,
    ReadAnswer,
    ReadDecision,
    RejectedLine,
    ShownQuestion,
    StoppedLine,
)

HappenedLine = AskedLine | AnsweredLine | HandedLine | EndedLine

_RETRIABLE: Final = frozenset((State.FAILED.value, State.REJECTED.value))
"""End states of a leg after which a client may send the same token again."""

_FIRST_TIME_REASONS: Final = frozenset((Reason.NEW, Reason.OTHER_BUILD, Reason.REVISED))
"""Reasons that a question can have the first time it is asked; it has any other reason only when asked again."""


class Mark(StrEnum):
    """Status of a question in a round."""

    ASKED = "asked"
    ASKED_AGAIN = "asked again"
    REUSED = "reused"
    """The answer came out of the token."""
    PENDING = "pending"
    """The question is open, and the call waits for its answer."""


SYMBOLS: Final = {Mark.ASKED: "●", Mark.ASKED_AGAIN: "↻", Mark.REUSED: "✓", Mark.PENDING: "○"}
"""A symbol for each mark, so that colors are not needed to distinguish them."""


@dataclass(slots=True, eq=False)
class Serving:
    """Request that reached its function, on one instance."""

    instance: str
    number: int
    leg: int
    lines: list[BeganLine | HappenedLine] = field(default_factory=list[BeganLine | HappenedLine])

    @property
    def began(self) -> BeganLine | None:
        """Return the first line; None if the transcript lacks it, for example after a rotation."""
        first = self.lines[0]
        return first if isinstance(first, BeganLine) else None

    @property
    def started_at(self) -> float:
        """Return the start in seconds since the epoch."""
        first = self.lines[0]
        return first.at if isinstance(first, BeganLine) else first.at - first.ms / 1000

    @property
    def happened(self) -> list[HappenedLine]:
        """Return all lines except the first."""
        return [line for line in self.lines if not isinstance(line, BeganLine)]

    @property
    def ended(self) -> EndedLine | None:
        """Return the line that ended the call, if this serving did."""
        last = self.lines[-1]
        return last if isinstance(last, EndedLine) else None

    @property
    def has_asked(self) -> bool:
        """Return True if it left questions open."""
        return isinstance(self.lines[-1], AskedLine)

    @property
    def is_handed(self) -> bool:
        """Return True if the call goes on as a task."""
        return isinstance(self.lines[-1], HandedLine)

    @property
    def is_over(self) -> bool:
        """Return True if the client got a response: questions, a link or a wait, or the end of the call."""
        return self.ended is not None or self.is_handed or (self.has_asked and not self.is_open)

    @property
    def is_open(self) -> bool:
        """Return True if it waits for its client over the open connection, in the live era."""
        last, is_live = self.lines[-1], self.began is not None and self.began.era == "live"
        # Questions that end a leg are written with its token, also if the store keeps the call and the token is empty.
        return is_live and isinstance(last, AskedLine) and last.token is None

    @property
    def is_of_worker(self) -> bool:
        """Return True if a worker served it, as a leg of a task."""
        return self.began is not None and self.began.era == "task"

    @property
    def takes_over(self) -> bool:
        """Return True if its worker took the task over from one that stopped renewing its lease."""
        return self.began is not None and self.began.takes_over

    @property
    def brought(self) -> tuple[ReadAnswer, ...]:
        """Return the answers that came with the request."""
        return next((line.answers for line in self.happened), ())

    @property
    def moves(self) -> list[Move]:
        """Return the transitions of the machine, in order."""
        return [move for line in self.happened for move in line.moves]

    @property
    def arrows(self) -> list[tuple[State, Event, State]]:
        """Return the source, event and target of each transition."""
        found: list[tuple[State, Event, State]] = []
        state = State.RECEIVED if self.leg == 1 else State.AWAITING_INPUT
        if self.moves and self.is_of_worker:
            # A task goes on behind its parameters first, and later from questions.
            state = State.AWAITING_INPUT if self.moves[0][0] is Event.RESUME else State.RESOLVING
        for event, target, _ in self.moves:
            found.append((state, event, target))
            state = target
        return found

    @property
    def is_recall(self) -> bool:
        """Return True if the ledger answered it with the result of an earlier serving; the function did not run."""
        return any(event is Event.RECALL for event, _, _ in self.moves)

    @property
    def bodies(self) -> int:
        """Return how often the body began."""
        return sum(line.bodies for line in self.happened)

    @property
    def waited_ms(self) -> float:
        """Return the time it waited for answers over the open connection."""
        waited, asked = 0.0, None
        for line in self.lines:
            if isinstance(line, AskedLine):
                asked = line
            elif isinstance(line, AnsweredLine):
                waited, asked = waited + line.waited, None
            elif isinstance(line, EndedLine) and asked is not None:
                # Interrupted while the question was open.
                waited += line.ms - asked.ms
        return waited

    @property
    def server_ms(self) -> float:
        """Return the time it worked, without the waiting."""
        last = self.lines[-1]
        return 0.0 if isinstance(last, BeganLine) else max(0.0, last.ms - self.waited_ms)

    @property
    def token_bytes(self) -> int | None:
        """Return the size of the token that the request brought; None if it brought none, or no line says so."""
        return self.began.token_bytes if self.began is not None else None


@dataclass(slots=True, eq=False)
class Round:
    """Questions that went out together, and their answers as far as recorded."""

    asked: AskedLine
    serving: Serving
    answered_at: float | None = None
    """Time when the answers arrived; None before that."""
    given_up_at: float | None = None
    """Time when the body stopped waiting for them, for example after a timeout around the question."""
    answers: list[ReadAnswer] = field(default_factory=list[ReadAnswer])
    read_by: Serving | None = None
    """The serving that read the answers first; a replay of that leg reads them again."""

    @property
    def number(self) -> int:
        """Return the number of the round within its call."""
        return self.asked.round

    @property
    def waited_ms(self) -> float | None:
        """Return the time from the questions to the answers, or to the end of the waiting."""
        until = self.answered_at if self.answered_at is not None else self.given_up_at
        return None if until is None else max(0.0, until - self.asked.at) * 1000


@dataclass(frozen=True, slots=True)
class Omitted:
    """Requests of a call that were not kept, and their part in its figures."""

    requests: int = 0
    replays: int = 0
    rejections: int = 0
    bodies: int = 0
    server_ms: float = 0.0
    waited_ms: float = 0.0
    last_at: float | None = None
    is_cut: bool = False
    """True if requests that equal no other are among them."""


NOTHING_OMITTED: Final = Omitted()


@dataclass(eq=False)
class TracedCall:
    """Call over all of its legs and instances, which does not change once it is joined."""

    id: str
    servings: list[Serving]
    rounds: list[Round]
    rejections: list[RejectedLine]
    """The rejected tokens of this call."""
    actions: list[ActedLine] = field(default_factory=list[ActedLine])
    """The actions of operators on this call, in order."""
    stops: list[StoppedLine] = field(default_factory=list[StoppedLine])
    """The ends of this call outside of its servings, in order."""
    omitted: Omitted = NOTHING_OMITTED
    """What is not kept of a call with very many requests, but counts."""

    @property
    def lines(self) -> list[Line]:
        """Return all lines that are kept."""
        return [*(line for serving in self.servings for line in serving.lines), *self._beside]

    @property
    def _beside(self) -> list[RejectedLine | ActedLine | StoppedLine]:
        """Return the lines outside of servings."""
        return [*self.rejections, *self.actions, *self.stops]

    @cached_property
    def began(self) -> BeganLine | None:
        """Return the first line that names the tool."""
        return next((serving.began for serving in self.servings if serving.began is not None), None)

    @property
    def tool(self) -> str:
        """Return the name of the tool; `?` if no line has it."""
        return self.began.tool if self.began is not None else "?"

    @property
    def occurrences(self) -> list[Serving | RejectedLine | ActedLine | StoppedLine]:
        """Return all servings in order, each after the lines of other kinds that were earlier."""
        others = sorted(self._beside, key=lambda line: line.at)
        return [*merge(self.servings, others, key=lambda one: one.started_at if isinstance(one, Serving) else one.at)]

    @cached_property
    def chain(self) -> list[Serving]:
        """Return one serving of each leg: if there were several, the one that the client continued with.

        The leg with which the call became a task has two: the request, and the serving by a worker.
        The last serving counts, as the response to an earlier one may have been lost. An earlier one counts if the
        last was answered by the ledger, lacked the answers that the other brought, or failed before its body.
        """
        by_leg: dict[int, list[Serving]] = {}
        for serving in self.servings:
            by_leg.setdefault(serving.leg, []).append(serving)
        chain: list[Serving] = []
        for leg in sorted(by_leg, reverse=True):
            counting = _counting(by_leg[leg], later=chain[-1] if chain else None)
            handed = [one for one in by_leg[leg] if one.is_handed and one is not counting]
            chain += [counting, *handed[-1:]]
        return chain[::-1]

    @cached_property
    def ended(self) -> EndedLine | None:
        """Return the line that ended the call; None if it has not ended, or a failed leg was retried."""
        if not self.servings:
            return None
        ended = self.chain[-1].ended
        is_retried = ended is not None and ended.state in _RETRIABLE and not self.servings[-1].is_over
        return None if is_retried else ended

    @property
    def ended_by(self) -> ActedLine | None:
        """Return the action with which an operator ended the call."""
        return next((one for one in self.actions if one.outcome == "done" and one.action in ENDING_ACTIONS), None)

    @cached_property
    def stopped(self) -> StoppedLine | None:
        """Return the end of the stored call outside of its servings, unless the call went on after it.

        It counts more than a serving's own end, which the store did not take.
        """
        last = self.stops[-1] if self.stops else None
        if last is None or (self.servings and self.servings[-1].started_at > last.at):
            return None
        is_retried = any(one.action == "retry" and one.outcome == "done" and one.at > last.at for one in self.actions)
        return None if is_retried else last

    @property
    def is_stored(self) -> bool:
        """Return True if the store of the server has it, as far as it was recorded: a task, or asked otherwise."""
        by_client = not self.rounds or self.rounds[-1].asked.rung is None
        return not by_client or any(one.is_handed or one.is_of_worker for one in self.servings)

    @property
    def is_over(self) -> bool:
        """Return True if it has ended."""
        return self.ended is not None or self.ended_by is not None or self.stopped is not None

    @cached_property
    def state(self) -> State:
        """Return the current state. A call that ended outside of its servings has failed, unless it joined another."""
        if self.stopped is not None:
            return State.COMPLETED if self.stopped.how == "joined" else State.FAILED
        if self.ended is not None:
            return State(self.ended.state)
        if self.ended_by is not None:
            return State.FAILED
        if not self.servings:
            return State.REJECTED if self.rejections else State.RECEIVED
        latest = self.chain[-1] if self.servings[-1].is_over else self.servings[-1]
        if latest.has_asked:
            return State.AWAITING_INPUT
        if latest.moves:
            return latest.moves[-1][1]
        # Its request has arrived, and nothing that happened since is written yet.
        return State.RECEIVED if latest.leg == 1 else State.RESUMED

    @property
    def unanswered(self) -> tuple[ShownQuestion, ...]:
        """Return the questions of the last round, if it was not answered."""
        if not self.rounds or self.rounds[-1].answered_at is not None:
            return ()
        return self.rounds[-1].asked.questions

    @cached_property
    def pending(self) -> tuple[ShownQuestion, ...]:
        """Return the open questions."""
        return self.unanswered if self.state is State.AWAITING_INPUT else ()

    @property
    def awaited(self) -> tuple[AskedApproval, ...]:
        """Return the approvals for which the call waits."""
        is_waiting = self.state is State.AWAITING_INPUT and self.rounds and self.rounds[-1].answered_at is None
        return self.rounds[-1].asked.approvals if is_waiting else ()

    @cached_property
    def decisions(self) -> dict[str, ReadDecision]:
        """Return the decisions about approvals that legs have read, by the names of the approvals."""
        lines = [line for serving in self.servings for line in serving.happened]
        return {read.key: read for line in reversed(lines) for read in line.decisions}

    @property
    def legs(self) -> int:
        """Return the number of legs."""
        return max((serving.leg for serving in self.servings), default=0)

    @property
    def round_count(self) -> int:
        """Return the number of rounds; a replayed leg asks the questions of its round again."""
        return max((round_.number for round_ in self.rounds), default=0)

    @property
    def replays(self) -> list[tuple[Serving, Serving]]:
        """Return each repeated serving of a leg, with the first serving of that leg; without `takeovers`."""
        first: dict[int, Serving] = {}
        found = [(serving, first.setdefault(serving.leg, serving)) for serving in self.servings]
        repeated = [(one, earlier) for one, earlier in found if one is not earlier and not earlier.is_handed]
        return [(one, earlier) for one, earlier in repeated if not one.takes_over]

    @property
    def takeovers(self) -> list[tuple[Serving, Serving | None]]:
        """Return each serving that took a leg over, with that of the worker before; None if that is not recorded."""
        found: list[tuple[Serving, Serving | None]] = []
        before: dict[int, Serving] = {}
        for serving in self.servings:
            if serving.takes_over:
                found.append((serving, before.get(serving.leg)))
            if not serving.is_handed:
                before[serving.leg] = serving
        return found

    @property
    def silent_servings(self) -> int:
        """Return how many servings were taken over without a recorded end; each may have begun the body."""
        return sum(before is None or not before.is_over for _, before in self.takeovers)

    @property
    def replay_count(self) -> int:
        """Return the number of repeated servings."""
        return len(self.replays) + self.omitted.replays

    @property
    def rejection_count(self) -> int:
        """Return the number of rejected tokens."""
        return len(self.rejections) + self.omitted.rejections

    @property
    def request_count(self) -> int:
        """Return the number of requests: servings and rejected tokens."""
        return len(self.servings) + len(self.rejections) + self.omitted.requests

    @property
    def started_at(self) -> float:
        """Return the time of the first line in seconds since the epoch."""
        if self.servings:
            return self.servings[0].started_at
        return min((line.at for line in self._beside), default=0.0)

    @property
    def last_at(self) -> float:
        """Return the time of the last line in seconds since the epoch."""
        omitted = [self.omitted.last_at] if self.omitted.last_at is not None else []
        return max([*(line.at for line in self.lines), *omitted], default=0.0)

    @property
    def server_ms(self) -> float:
        """Return the time that instances worked for it."""
        return sum(serving.server_ms for serving in self.servings) + self.omitted.server_ms

    @property
    def waited_ms(self) -> float:
        """Return the time that it waited for answers."""
        return sum(round_.waited_ms or 0.0 for round_ in self.rounds) + self.omitted.waited_ms

    @property
    def bodies(self) -> int:
        """Return how often its body began, as far as recorded."""
        return sum(serving.bodies for serving in self.servings) + self.omitted.bodies

    @property
    def is_unknown(self) -> bool:
        """Return True if it ended because its process died in a body that runs once."""
        return self.ended is not None and self.ended.error_type == OutcomeUnknown.__name__

    @property
    def may_have_run(self) -> bool:
        """Return True if its body may have begun without a record: a leg has no end here, or its worker died."""
        is_lost = self.stopped is not None and self.stopped.how == "lost"
        return is_lost or self.is_unknown or any(not serving.is_over for serving in self.servings)

    @property
    def instances(self) -> list[str]:
        """Return the instances that served it, in order, each once."""
        return list(dict.fromkeys(serving.instance for serving in self.servings))

    @property
    def reasons(self) -> frozenset[str]:
        """Return the reasons of its questions and of its rejected tokens."""
        asked = {question.reason.value for round_ in self.rounds for question in round_.asked.questions}
        return frozenset(asked | {rejection.reason.value for rejection in self.rejections})

    @property
    def arrows(self) -> list[tuple[State, Event, State]]:
        """Return the source, event and target of every transition of the machine, in order."""
        return [arrow for serving in self.servings for arrow in serving.arrows]

    def shown_before(self, round_: Round, question: ShownQuestion) -> tuple[Round, ShownQuestion] | None:
        """Return the last earlier round that asked a question, under its name or the former one."""
        place = next((place for place, other in enumerate(self.rounds) if other is round_), 0)
        for earlier in reversed(self.rounds[:place]):
            if earlier.serving.leg == round_.serving.leg and earlier.serving is not round_.serving:
                continue
            for other in earlier.asked.questions:
                if other.key in (question.key, question.former):
                    return earlier, other
        return None

    def is_asked_again(self, round_: Round, question: ShownQuestion) -> bool:
        """Return True if a question was asked in an earlier round; most reasons imply it."""
        return question.reason not in _FIRST_TIME_REASONS or self.shown_before(round_, question) is not None

    def marks(self) -> dict[str, list[Mark | None]]:
        """Return the marks of each question and approval: a column for each round, and one for the time after it."""
        marks: defaultdict[str, list[Mark | None]] = defaultdict(lambda: [None] * (len(self.rounds) + 1))
        for place, round_ in enumerate(self.rounds):
            for question in round_.asked.questions:
                again = self.is_asked_again(round_, question)
                marks[question.key][place] = Mark.ASKED_AGAIN if again else Mark.ASKED
            for approval in round_.asked.approvals:
                marks[approval.key][place] = Mark.ASKED
            for key in round_.asked.reused:
                # A body that a review repeats can reuse an answer first, and then ask for it again.
                marks[key][place] = marks[key][place] or Mark.REUSED
        for question in (*self.pending, *self.awaited):
            marks[question.key][-2] = Mark.PENDING
        for key in self.ended.reused if self.ended is not None else ():
            marks[key][-1] = Mark.REUSED
        return dict(marks)


@dataclass(slots=True)
class Traced:
    """Calls of some transcripts by the time of their first line, and the lines beside them."""

    calls: dict[str, TracedCall]
    strays: list[RejectedLine]
    """The rejections of tokens without a known call."""
    actions: list[ActedLine] = field(default_factory=list[ActedLine])
    """All actions of operators, in order, also on calls that no other line names."""


def _counting(servings: Sequence[Serving], *, later: Serving | None) -> Serving:
    """Return the serving of a leg that the client continued with; `later` is the one of the next leg that counts."""
    brought = later.token_bytes if later is not None else None
    # A token that was sent twice with different answers got two others, usually of different sizes.
    fitting = [one for one in servings if brought is not None and _size_of_next(one) == brought] or servings
    earlier = [serving for serving in fitting if later is None or serving.started_at <= later.started_at]
    # None may be earlier, as the clocks of instances differ.
    candidates = earlier or fitting
    return max(enumerate(candidates), key=lambda item: (*_weight(item[1], goes_on=later is not None), item[0]))[1]


def _weight(serving: Serving, *, goes_on: bool) -> tuple[bool, ...]:
    """Return the rank of a serving among several of one leg; of equal ranks the last counts."""
    was_stopped = serving.ended is not None and serving.ended.state in _RETRIABLE and not serving.bodies
    is_answered = serving.is_over and not was_stopped
    # The request with which a call became a task has the answers, and its worker's serving of the leg goes on.
    is_last = not serving.is_handed
    asks = serving.has_asked or not goes_on
    return (is_last, serving.is_of_worker, asks, is_answered, bool(serving.brought), not serving.is_recall)


def _size_of_next(serving: Serving) -> int | None:
    """Return the size of the token with which a request was answered."""
    last = serving.lines[-1]
    return last.token.bytes if isinstance(last, AskedLine) and last.token is not None else None
