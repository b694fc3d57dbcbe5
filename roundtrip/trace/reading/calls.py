"""Traced calls: the attempts at their legs, their rounds of questions, and their states."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from heapq import merge
from typing import Final

from roundtrip.errors import AnsweredOtherwise, OutcomeUnknown
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
    FoundIntent,
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
"""End states after which a client may send the same token again."""

_FIRST_TIME_REASONS: Final = frozenset((Reason.NEW, Reason.OTHER_BUILD, Reason.REVISED))
"""Reasons that a question can have when it is first asked. Any other reason means that it is being asked again."""


class Mark(StrEnum):
    """Question status in a round."""

    ASKED = "asked"
    ASKED_AGAIN = "asked again"
    REUSED = "reused"
    """The answer came from the token."""
    PENDING = "pending"
    """The call waits for the answer."""


SYMBOLS: Final = {Mark.ASKED: "●", Mark.ASKED_AGAIN: "↻", Mark.REUSED: "✓", Mark.PENDING: "○"}
"""A symbol for each mark, so that a mark can be recognized without its color."""


@dataclass(slots=True, eq=False)
class Serving:
    """One attempt at a leg on one instance: a request that reached the called function, or a worker's run."""

    instance: str
    number: int
    leg: int
    lines: list[BeganLine | HappenedLine] = field(default_factory=list[BeganLine | HappenedLine])

    @property
    def began(self) -> BeganLine | None:
        """Return the first line; None if the transcript does not contain it, for example after a rotation."""
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
        """Return the line that ended the call; None if this attempt did not end it."""
        last = self.lines[-1]
        return last if isinstance(last, EndedLine) else None

    @property
    def has_asked(self) -> bool:
        """Return True if the last line asks questions."""
        return isinstance(self.lines[-1], AskedLine)

    @property
    def is_handed(self) -> bool:
        """Return True if the call became a task."""
        return isinstance(self.lines[-1], HandedLine)

    @property
    def is_over(self) -> bool:
        """Return True if the attempt has produced a response: questions, a link, a task or the call's end."""
        return self.ended is not None or self.is_handed or (self.has_asked and not self.is_open)

    @property
    def is_open(self) -> bool:
        """Return True if a live-era call is waiting for its client over the open connection."""
        last, is_live = self.lines[-1], self.began is not None and self.began.era == "live"
        # If questions end a leg, their line has a token. The token is empty if the store keeps the call.
        return is_live and isinstance(last, AskedLine) and last.token is None

    @property
    def is_of_worker(self) -> bool:
        """Return True if a worker served a task's leg."""
        return self.began is not None and self.began.era == "task"

    @property
    def takes_over(self) -> bool:
        """Return True if this worker took the task over from a worker that had stopped renewing its lease."""
        return self.began is not None and self.began.takes_over

    @property
    def brought(self) -> tuple[ReadAnswer, ...]:
        """Return the answers that came with the request."""
        return next((line.answers for line in self.happened), ())

    @property
    def moves(self) -> list[Move]:
        """Return the machine's transitions, in order."""
        return [move for line in self.happened for move in line.moves]

    @property
    def arrows(self) -> list[tuple[State, Event, State]]:
        """Return the source, event and target of each transition."""
        found: list[tuple[State, Event, State]] = []
        state = State.RECEIVED if self.leg == 1 else State.AWAITING_INPUT
        if self.moves and self.is_of_worker:
            # On a worker, a task's first leg begins with filled parameters, and later legs begin in the waiting state.
            state = State.AWAITING_INPUT if self.moves[0][0] is Event.RESUME else State.RESOLVING
        for event, target, _ in self.moves:
            found.append((state, event, target))
            state = target
        return found

    @property
    def is_recall(self) -> bool:
        """Return True if the function did not run because the ledger already had its result."""
        found = self.intent
        return any(event is Event.RECALL for event, _, _ in self.moves) or (
            found is not None and found.how == "recalled"
        )

    @property
    def intent(self) -> FoundIntent | None:
        """Return what the server found about the call's intent; None for a tool without `once_per=`."""
        return next((line.intent for line in self.happened if line.intent is not None), None)

    @property
    def joins(self) -> bool:
        """Return True if the request joined a call that another request had begun or continued."""
        return self.intent is not None and self.intent.how == "joined"

    @property
    def is_of_intent(self) -> bool:
        """Return True if the request may be another one than that of the leg's earlier attempt."""
        return self.is_rivaled or (self.intent is not None and self.intent.how in ("joined", "recalled"))

    @property
    def continues_live(self) -> bool:
        """Return True if the answers came over the open connection of the request that an earlier leg served."""
        is_first = self.intent is None or (self.intent.how != "continued" and self.intent.token_leg is None)
        return not is_first and self.began is not None and self.began.era == "live"

    @property
    def is_rivaled(self) -> bool:
        """Return True if another request had answered this request's questions otherwise."""
        return self.ended is not None and self.ended.error_type == AnsweredOtherwise.__name__

    @property
    def bodies(self) -> int:
        """Return how many times the body began."""
        return sum(line.bodies for line in self.happened)

    @property
    def waited_ms(self) -> float:
        """Return how long this attempt waited for answers over the open connection."""
        waited, asked = 0.0, None
        for line in self.lines:
            if isinstance(line, AskedLine):
                asked = line
            elif isinstance(line, AnsweredLine):
                waited, asked = waited + line.waited, None
            elif isinstance(line, EndedLine) and asked is not None:
                # The attempt was interrupted while the question was open.
                waited += line.ms - asked.ms
        return waited

    @property
    def server_ms(self) -> float:
        """Return this attempt's duration without the time spent waiting for answers."""
        last = self.lines[-1]
        return 0.0 if isinstance(last, BeganLine) else max(0.0, last.ms - self.waited_ms)

    @property
    def token_bytes(self) -> int | None:
        """Return the request's token size. Return None if the request had no token or the size is not recorded."""
        return self.began.token_bytes if self.began is not None else None


@dataclass(slots=True, eq=False)
class Round:
    """Questions that were asked together, and their recorded answers."""

    asked: AskedLine
    serving: Serving
    answered_at: float | None = None
    """Time when the answers arrived; None if they have not arrived."""
    given_up_at: float | None = None
    """Time when the body stopped waiting for answers, for example after a timeout around the question."""
    answers: list[ReadAnswer] = field(default_factory=list[ReadAnswer])
    read_by: Serving | None = None
    """The attempt that first read the answers. Repeated attempts read the answers again."""

    @property
    def number(self) -> int:
        """Return the round's number within its call."""
        return self.asked.round

    @property
    def waited_ms(self) -> float | None:
        """Return the time from the questions to the answers, or until the body stopped waiting."""
        until = self.answered_at if self.answered_at is not None else self.given_up_at
        return None if until is None else max(0.0, until - self.asked.at) * 1000


@dataclass(frozen=True, slots=True)
class Omitted:
    """The requests that were omitted from a call, and what they add to the call's figures."""

    requests: int = 0
    replays: int = 0
    rejections: int = 0
    bodies: int = 0
    server_ms: float = 0.0
    waited_ms: float = 0.0
    last_at: float | None = None
    is_cut: bool = False
    """True if some omitted requests were not repetitions."""


NOTHING_OMITTED: Final = Omitted()


@dataclass(eq=False)
class TracedCall:
    """A call across all its legs and instances. It does not change after `join`."""

    id: str
    servings: list[Serving]
    rounds: list[Round]
    rejections: list[RejectedLine]
    """Rejections of this call's tokens."""
    actions: list[ActedLine] = field(default_factory=list[ActedLine])
    """Operator actions on this call, in order."""
    stops: list[StoppedLine] = field(default_factory=list[StoppedLine])
    """Lines that ended this call outside a leg, in order."""
    omitted: Omitted = NOTHING_OMITTED
    """The requests that were omitted because the call has very many. The call's figures still include them."""

    @property
    def lines(self) -> list[Line]:
        """Return all recorded lines, except the lines of omitted requests."""
        return [*(line for serving in self.servings for line in serving.lines), *self._other_lines]

    @property
    def _other_lines(self) -> list[RejectedLine | ActedLine | StoppedLine]:
        """Return the lines about rejected tokens, operator actions, and ends outside a leg."""
        return [*self.rejections, *self.actions, *self.stops]

    @cached_property
    def began(self) -> BeganLine | None:
        """Return the first recorded line that begins a leg; None if no such line exists."""
        return next((serving.began for serving in self.servings if serving.began is not None), None)

    @property
    def tool(self) -> str:
        """Return the tool name; `?` if no line contains it."""
        return self.began.tool if self.began is not None else "?"

    @property
    def occurrences(self) -> list[Serving | RejectedLine | ActedLine | StoppedLine]:
        """Return all attempts and all other lines, in order."""
        others = sorted(self._other_lines, key=lambda line: line.at)
        return [*merge(self.servings, others, key=lambda one: one.started_at if isinstance(one, Serving) else one.at)]

    @cached_property
    def chain(self) -> list[Serving]:
        """Return one attempt for each leg: the attempt whose response the client acted on.

        The leg that turned the call into a task has two attempts: the client's request and the worker's run. Usually a
        leg's last attempt counts, because the response to an earlier attempt may have been lost. An earlier attempt
        counts if the last attempt got its result from the ledger, lacked the earlier answers, or failed before its
        body.
        """
        by_leg: dict[int, list[Serving]] = {}
        for serving in self.servings:
            by_leg.setdefault(serving.leg, []).append(serving)
        chain: list[Serving] = []
        for leg in sorted(by_leg, reverse=True):
            continued = _continued_serving(by_leg[leg], later=chain[-1] if chain else None)
            handed = [one for one in by_leg[leg] if one.is_handed and one is not continued]
            chain += [continued, *handed[-1:]]
        return chain[::-1]

    @cached_property
    def ended(self) -> EndedLine | None:
        """Return the line that ended the call; None if the call is open, or a failed leg was retried."""
        if not self.servings:
            return None
        ended = self.chain[-1].ended
        is_retried = ended is not None and ended.state in _RETRIABLE and not self.servings[-1].is_over
        return None if is_retried else ended

    @property
    def ended_by(self) -> ActedLine | None:
        """Return the operator action that ended the call."""
        return next((one for one in self.actions if one.outcome == "done" and one.action in ENDING_ACTIONS), None)

    @cached_property
    def stopped(self) -> StoppedLine | None:
        """Return the line that ended the stored call outside a leg; None if the call continued after that line.

        If an attempt at a leg also recorded an end, this line takes precedence, because the store rejected that end.
        """
        last = self.stops[-1] if self.stops else None
        if last is None or (self.servings and self.servings[-1].started_at > last.at):
            return None
        is_retried = any(one.action == "retry" and one.outcome == "done" and one.at > last.at for one in self.actions)
        return None if is_retried else last

    @property
    def is_stored(self) -> bool:
        """Return True if the server stores the call: it is a task, or its last questions did not go to the client."""
        by_client = not self.rounds or self.rounds[-1].asked.rung is None
        return not by_client or any(one.is_handed or one.is_of_worker for one in self.servings)

    @property
    def is_over(self) -> bool:
        """Return True if the call has ended."""
        return self.ended is not None or self.ended_by is not None or self.stopped is not None

    @cached_property
    def state(self) -> State:
        """Return the current state. A call that ended outside a leg has failed, unless it joined another call."""
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
        # The request has arrived, and no line about a later event has been written yet.
        return State.RECEIVED if latest.leg == 1 else State.RESUMED

    @property
    def unanswered(self) -> tuple[ShownQuestion, ...]:
        """Return the last round's questions, if the round has no answers."""
        if not self.rounds or self.rounds[-1].answered_at is not None:
            return ()
        return self.rounds[-1].asked.questions

    @cached_property
    def pending(self) -> tuple[ShownQuestion, ...]:
        """Return the open questions."""
        return self.unanswered if self.state is State.AWAITING_INPUT else ()

    @property
    def awaited(self) -> tuple[AskedApproval, ...]:
        """Return the pending approvals."""
        is_waiting = self.state is State.AWAITING_INPUT and self.rounds and self.rounds[-1].answered_at is None
        return self.rounds[-1].asked.approvals if is_waiting else ()

    @cached_property
    def decisions(self) -> dict[str, ReadDecision]:
        """Return the approval decisions that legs have read, by approval name."""
        lines = [line for serving in self.servings for line in serving.happened]
        return {read.key: read for line in reversed(lines) for read in line.decisions}

    @property
    def legs(self) -> int:
        """Count the legs."""
        return max((serving.leg for serving in self.servings), default=0)

    @property
    def round_count(self) -> int:
        """Count the rounds. If a leg is served again, its repeated round is not counted again."""
        return max((round_.number for round_ in self.rounds), default=0)

    @property
    def replays(self) -> list[tuple[Serving, Serving]]:
        """Return each repeated attempt with its leg's first attempt.

        The attempts in `takeovers`, and requests of other clients with the same intent, are not included.
        """
        first: dict[int, Serving] = {}
        found = [(serving, first.setdefault(serving.leg, serving)) for serving in self.servings]
        repeated = [(one, earlier) for one, earlier in found if one is not earlier and not earlier.is_handed]
        return [(one, earlier) for one, earlier in repeated if not (one.takes_over or one.is_of_intent)]

    @property
    def takeovers(self) -> list[tuple[Serving, Serving | None]]:
        """Return each attempt that took over a leg, with the previous worker's attempt, or None if that is not
        recorded.
        """
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
        """Count the takeovers whose previous attempt has no recorded end. That attempt may have begun the body."""
        return sum(before is None or not before.is_over for _, before in self.takeovers)

    @property
    def replay_count(self) -> int:
        """Count the repeated attempts."""
        return len(self.replays) + self.omitted.replays

    @property
    def rejection_count(self) -> int:
        """Count the rejected tokens."""
        return len(self.rejections) + self.omitted.rejections

    @property
    def request_count(self) -> int:
        """Count the requests: attempts at legs, and rejected tokens."""
        return len(self.servings) + len(self.rejections) + self.omitted.requests

    @property
    def started_at(self) -> float:
        """Return the first line's time, in seconds since the epoch."""
        if self.servings:
            return self.servings[0].started_at
        return min((line.at for line in self._other_lines), default=0.0)

    @property
    def last_at(self) -> float:
        """Return the last line's time, in seconds since the epoch."""
        omitted = [self.omitted.last_at] if self.omitted.last_at is not None else []
        return max([*(line.at for line in self.lines), *omitted], default=0.0)

    @property
    def server_ms(self) -> float:
        """Return the total working time on all instances."""
        return sum(serving.server_ms for serving in self.servings) + self.omitted.server_ms

    @property
    def waited_ms(self) -> float:
        """Return the total time that the call waited for answers."""
        return sum(round_.waited_ms or 0.0 for round_ in self.rounds) + self.omitted.waited_ms

    @property
    def bodies(self) -> int:
        """Return how many times the body began, according to the transcript."""
        return sum(serving.bodies for serving in self.servings) + self.omitted.bodies

    @property
    def is_unknown(self) -> bool:
        """Return True if the call ended because the process died while it ran a body that must run only once."""
        return self.ended is not None and self.ended.error_type == OutcomeUnknown.__name__

    @property
    def may_have_run(self) -> bool:
        """Return True if the body may have begun without being recorded: a leg's end was not recorded, or its worker
        died.
        """
        is_lost = self.stopped is not None and self.stopped.how == "lost"
        return is_lost or self.is_unknown or any(not serving.is_over for serving in self.servings)

    @property
    def instances(self) -> list[str]:
        """Return the instances that served the call, in order, without duplicates."""
        return list(dict.fromkeys(serving.instance for serving in self.servings))

    @property
    def reasons(self) -> frozenset[str]:
        """Return the reasons for the call's questions and token rejections."""
        asked = {question.reason.value for round_ in self.rounds for question in round_.asked.questions}
        return frozenset(asked | {rejection.reason.value for rejection in self.rejections})

    @property
    def arrows(self) -> list[tuple[State, Event, State]]:
        """Return the source, event and target of every transition, in order."""
        return [arrow for serving in self.servings for arrow in serving.arrows]

    def shown_before(self, round_: Round, question: ShownQuestion) -> tuple[Round, ShownQuestion] | None:
        """Return the last earlier round that asked a question, and the question as it was asked there. Former names
        count.
        """
        place = next((place for place, other in enumerate(self.rounds) if other is round_), 0)
        for earlier in reversed(self.rounds[:place]):
            if earlier.serving.leg == round_.serving.leg and earlier.serving is not round_.serving:
                continue
            for other in earlier.asked.questions:
                if other.key in (question.key, question.former):
                    return earlier, other
        return None

    def is_asked_again(self, round_: Round, question: ShownQuestion) -> bool:
        """Return True if an earlier round also asked the question. Most reasons for asking a question imply this."""
        return question.reason not in _FIRST_TIME_REASONS or self.shown_before(round_, question) is not None

    def marks(self) -> dict[str, list[Mark | None]]:
        """Return the marks for each question and approval: one column per round, and one column for the time after the
        last round.
        """
        marks: defaultdict[str, list[Mark | None]] = defaultdict(lambda: [None] * (len(self.rounds) + 1))
        for place, round_ in enumerate(self.rounds):
            for question in round_.asked.questions:
                again = self.is_asked_again(round_, question)
                marks[question.key][place] = Mark.ASKED_AGAIN if again else Mark.ASKED
            for approval in round_.asked.approvals:
                marks[approval.key][place] = Mark.ASKED
            for key in round_.asked.reused:
                # When a review repeats the body, the body can reuse an answer and then ask for it again.
                marks[key][place] = marks[key][place] or Mark.REUSED
        for question in (*self.pending, *self.awaited):
            marks[question.key][-2] = Mark.PENDING
        for key in self.ended.reused if self.ended is not None else ():
            marks[key][-1] = Mark.REUSED
        return dict(marks)


@dataclass(slots=True)
class Traced:
    """The calls in the transcripts, ordered by each call's first line, and the lines that belong to no call."""

    calls: dict[str, TracedCall]
    strays: list[RejectedLine]
    """Token rejections that belong to no known call."""
    actions: list[ActedLine] = field(default_factory=list[ActedLine])
    """All operator actions, in order, including actions on calls that no other line names."""


def _continued_serving(servings: Sequence[Serving], *, later: Serving | None) -> Serving:
    """Return the attempt whose response the client acted on. `later` is the next leg's attempt in the chain."""
    brought = later.token_bytes if later is not None else None
    # If a client sent a token twice with different answers, it got two new tokens. Their sizes usually differ.
    fitting = [one for one in servings if brought is not None and _response_token_size(one) == brought] or servings
    earlier = [serving for serving in fitting if later is None or serving.started_at <= later.started_at]
    # Instance clocks differ, so all attempts may seem to be later.
    candidates = earlier or fitting
    return max(enumerate(candidates), key=lambda item: (*_rank(item[1], continues=later is not None), item[0]))[1]


def _rank(serving: Serving, *, continues: bool) -> tuple[bool, ...]:
    """Return a key that ranks the attempts at a leg. If ranks are equal, the last attempt wins."""
    was_stopped = serving.ended is not None and serving.ended.state in _RETRIABLE and not serving.bodies
    is_answered = serving.is_over and not was_stopped
    # The answers arrived with the request that turned the call into a task, but the leg continues in the worker that
    # serves the task.
    is_last = not serving.is_handed
    asks = serving.has_asked or not continues
    return (is_last, serving.is_of_worker, asks, is_answered, bool(serving.brought), not serving.is_recall)


def _response_token_size(serving: Serving) -> int | None:
    """Return the size of the response's token."""
    last = serving.lines[-1]
    return last.token.bytes if isinstance(last, AskedLine) and last.token is not None else None
