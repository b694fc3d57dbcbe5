"""Calls as transcripts tell of them: the lines of all instances, joined and put in order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from roundtrip.machine.facts import Reason
from roundtrip.machine.table import Event, State
from roundtrip.trace.writing.lines import (
    AnsweredLine,
    AskedLine,
    BeganLine,
    EndedLine,
    Line,
    ReadAnswer,
    RejectedLine,
    ShownQuestion,
)

__all__ = ["HappenedLine", "Mark", "Round", "Serving", "Traced", "TracedCall", "join"]

HappenedLine = AskedLine | AnsweredLine | EndedLine

_RETRIABLE: Final = frozenset((State.FAILED.value, State.REJECTED.value))
"""Ends of a leg after which a client may bring the same token once more."""

_MAYBE_FIRST: Final = frozenset((Reason.NEW, Reason.OTHER_BUILD, Reason.REVISED))
"""Reasons to put a question, whether or not it has been put."""


class Mark(StrEnum):
    """What became of a question in a round."""

    ASKED = "asked"
    ASKED_AGAIN = "asked again"
    REUSED = "reused"
    """Its answer came out of the token."""
    PENDING = "pending"
    """It is out, and the call waits for it."""


@dataclass(slots=True, eq=False)
class Serving:
    """One request that reached its function, on one instance."""

    instance: str
    number: int
    leg: int
    lines: list[BeganLine | HappenedLine] = field(default_factory=list[BeganLine | HappenedLine])

    @property
    def began(self) -> BeganLine | None:
        """Its first line; None where the transcript lacks it, as after a rotation."""
        first = self.lines[0]
        return first if isinstance(first, BeganLine) else None

    @property
    def started_at(self) -> float:
        """When it began, in seconds since the epoch."""
        first = self.lines[0]
        return first.at if isinstance(first, BeganLine) else first.at - first.ms / 1000

    @property
    def happened(self) -> list[HappenedLine]:
        """Its lines but for the first."""
        return [line for line in self.lines if not isinstance(line, BeganLine)]

    @property
    def is_over(self) -> bool:
        """Whether the client got something for it: questions, in the retry era, or the end of the call."""
        last = self.lines[-1]
        live = self.began is not None and self.began.era == "live"
        return isinstance(last, EndedLine) or (isinstance(last, AskedLine) and not live)

    @property
    def brought(self) -> tuple[ReadAnswer, ...]:
        """The answers that came with its request."""
        return next((line.answers for line in self.lines if not isinstance(line, BeganLine)), ())

    @property
    def is_recall(self) -> bool:
        """Whether it was answered with what the ledger has kept of an earlier serving; its function did not run."""
        return any(event is Event.RECALL for line in self.happened for event, _, _ in line.moves)

    @property
    def has_run(self) -> bool:
        """Whether its body was begun."""
        return any(line.bodies for line in self.happened)

    @property
    def waited_ms(self) -> float:
        """How long it waited for answers over the open connection."""
        return sum(line.waited for line in self.lines if isinstance(line, AnsweredLine))

    @property
    def server_ms(self) -> float:
        """How long it worked, without the waiting."""
        last = self.lines[-1]
        return 0.0 if isinstance(last, BeganLine) else max(0.0, last.ms - self.waited_ms)


@dataclass(slots=True, eq=False)
class Round:
    """Questions that went out together, and what is known of the answers."""

    asked: AskedLine
    serving: Serving
    answered_at: float | None = None
    """When the answers arrived; None while they have not."""
    given_up_at: float | None = None
    """When the body went on without waiting for them, as after a timeout around the question."""
    answers: list[ReadAnswer] = field(default_factory=list[ReadAnswer])
    read_by: Serving | None = None
    """Who read the answers first; a replay of that leg reads them again."""

    @property
    def number(self) -> int:
        """Which round of its call it is."""
        return self.asked.round

    @property
    def waited_ms(self) -> float | None:
        """How long the answers took, or were waited for in vain."""
        until = self.answered_at if self.answered_at is not None else self.given_up_at
        return None if until is None else max(0.0, until - self.asked.at) * 1000


@dataclass(slots=True, eq=False)
class TracedCall:
    """One call, over all of its legs and instances."""

    id: str
    servings: list[Serving]
    rounds: list[Round]
    rejections: list[RejectedLine]
    """Tokens of this call that were rejected."""

    @property
    def began(self) -> BeganLine | None:
        """The first line that tells what was called."""
        return next((serving.began for serving in self.servings if serving.began is not None), None)

    @property
    def tool(self) -> str:
        """What was called; `?` where no line tells."""
        return self.began.tool if self.began is not None else "?"

    @property
    def chain(self) -> list[Serving]:
        """One serving of each leg: the one that the client went on with, where the leg was served several times.

        The last one counts, as the response to the first may have been lost, unless it came to less: where the ledger
        answered it, where it lacked the answers that another had brought, or where it failed in front of its body.
        """
        by_leg: dict[int, list[Serving]] = {}
        for serving in self.servings:
            by_leg.setdefault(serving.leg, []).append(serving)
        chain: list[Serving] = []
        for leg in sorted(by_leg, reverse=True):
            before = chain[-1].started_at if chain else None
            chain.append(_counting(by_leg[leg], before=before))
        return chain[::-1]

    @property
    def ended(self) -> EndedLine | None:
        """The line that ended it; None if it has not ended, or the leg that failed was made good."""
        if not self.servings:
            return None
        serving = self.chain[-1]
        last = serving.lines[-1]
        if not isinstance(last, EndedLine):
            return None
        is_retried = last.state in _RETRIABLE and not self.servings[-1].is_over
        return None if is_retried else last

    @property
    def state(self) -> State:
        """Where it stands."""
        if self.ended is not None:
            return State(self.ended.state)
        if not self.servings:
            return State.REJECTED
        latest = self.chain[-1] if self.servings[-1].is_over else self.servings[-1]
        if isinstance(latest.lines[-1], AskedLine):
            return State.AWAITING_INPUT
        moved = [move for line in latest.happened for move in line.moves]
        if moved:
            return moved[-1][1]
        return State.RECEIVED if latest.leg == 1 else State.AWAITING_INPUT

    @property
    def pending(self) -> tuple[ShownQuestion, ...]:
        """The questions that it waits for."""
        if self.state is not State.AWAITING_INPUT or not self.rounds or self.rounds[-1].answered_at is not None:
            return ()
        return self.rounds[-1].asked.questions

    @property
    def legs(self) -> int:
        """How many legs it has had."""
        return max((serving.leg for serving in self.servings), default=0)

    @property
    def round_count(self) -> int:
        """How many rounds of questions it has had; a replayed leg asks those of its round once more."""
        return max((round_.number for round_ in self.rounds), default=0)

    @property
    def replays(self) -> list[tuple[Serving, Serving]]:
        """Servings of a leg that had been served before, each with the first of that leg."""
        first: dict[int, Serving] = {}
        found = [(serving, first.setdefault(serving.leg, serving)) for serving in self.servings]
        return [(serving, earlier) for serving, earlier in found if serving is not earlier]

    @property
    def started_at(self) -> float:
        """When its first line was written, in seconds since the epoch."""
        return self.servings[0].started_at if self.servings else self.rejections[0].at

    @property
    def last_at(self) -> float:
        """When its last line was written, in seconds since the epoch."""
        lines = [line.at for serving in self.servings for line in serving.lines]
        return max([*lines, *(line.at for line in self.rejections)])

    @property
    def server_ms(self) -> float:
        """How long instances worked for it."""
        return sum(serving.server_ms for serving in self.servings)

    @property
    def waited_ms(self) -> float:
        """How long it waited for people."""
        return sum(round_.waited_ms or 0.0 for round_ in self.rounds)

    @property
    def bodies(self) -> int:
        """How often its body was begun."""
        return sum(line.bodies for serving in self.servings for line in serving.happened)

    @property
    def instances(self) -> list[str]:
        """Who served it, in order, each once."""
        return list(dict.fromkeys(serving.instance for serving in self.servings))

    @property
    def reasons(self) -> frozenset[str]:
        """Why its questions were put, and why tokens of it were rejected."""
        asked = {question.reason.value for round_ in self.rounds for question in round_.asked.questions}
        return frozenset(asked | {rejection.reason.value for rejection in self.rejections})

    @property
    def path(self) -> list[tuple[Event, State]]:
        """Every move of the machine, in order."""
        lines = [line for serving in self.servings for line in serving.happened]
        return [(event, state) for line in lines for event, state, _ in line.moves]

    @property
    def visited(self) -> frozenset[tuple[State, Event]]:
        """Every arrow of the machine that it has gone along."""
        arrows: set[tuple[State, Event]] = set()
        for serving in self.servings:
            state = State.RECEIVED if serving.leg == 1 else State.AWAITING_INPUT
            for line in serving.happened:
                for event, target, _ in line.moves:
                    arrows.add((state, event))
                    state = target
        return frozenset(arrows)

    def shown_before(self, round_: Round, question: ShownQuestion) -> tuple[Round, ShownQuestion] | None:
        """When a question of a round was put before, under its name or the former one."""
        place = next((place for place, other in enumerate(self.rounds) if other is round_), 0)
        for earlier in reversed(self.rounds[:place]):
            if earlier.serving.leg == round_.serving.leg and earlier.serving is not round_.serving:
                continue
            for other in earlier.asked.questions:
                if other.key in (question.key, question.former):
                    return earlier, other
        return None

    def is_asked_again(self, round_: Round, question: ShownQuestion) -> bool:
        """Whether a question of a round was put before; most reasons say so, whatever else is recorded."""
        return question.reason not in _MAYBE_FIRST or self.shown_before(round_, question) is not None

    def marks(self) -> dict[str, list[Mark | None]]:
        """For each question, what became of it in each round, and, in one column more, after the last."""
        columns = len(self.rounds) + 1
        marks: dict[str, list[Mark | None]] = {}

        def row(key: str) -> list[Mark | None]:
            if key not in marks:
                marks[key] = [None] * columns
            return marks[key]

        for place, round_ in enumerate(self.rounds):
            for question in round_.asked.questions:
                again = self.is_asked_again(round_, question)
                row(question.key)[place] = Mark.ASKED_AGAIN if again else Mark.ASKED
            for key in round_.asked.reused:
                row(key)[place] = Mark.REUSED
        for question in self.pending:
            row(question.key)[-2] = Mark.PENDING
        for key in self.ended.reused if self.ended is not None else ():
            row(key)[-1] = Mark.REUSED
        return marks


@dataclass(slots=True)
class Traced:
    """All calls of some transcripts, by the time of their first line, and rejections of tokens that name no call."""

    calls: dict[str, TracedCall]
    strays: list[RejectedLine]


def join(lines: Iterable[Line]) -> Traced:
    """Put the lines of all instances together, call by call."""
    # With the leg, as a process that comes back under its old name counts from one again.
    servings: dict[tuple[str, str, int, int], Serving] = {}
    by_call: dict[str, list[Serving]] = {}
    rejections: dict[str, list[RejectedLine]] = {}
    strays: list[RejectedLine] = []
    for line in lines:
        if isinstance(line, RejectedLine):
            (strays if line.call is None else rejections.setdefault(line.call, [])).append(line)
            continue
        name = (line.call, line.instance, line.serving, line.leg)
        serving = servings.get(name)
        if serving is None or (isinstance(line, BeganLine) and serving.began is not None):
            # What begins once more is the same leg, retried after its process had come back.
            serving = servings[name] = Serving(line.instance, line.serving, line.leg)
            by_call.setdefault(line.call, []).append(serving)
        serving.lines.append(line)
    by_call |= {call: [] for call in rejections if call not in by_call}
    calls = [
        _call(call, sorted(found, key=lambda serving: (serving.leg, serving.started_at)), rejections.get(call, []))
        for call, found in by_call.items()
    ]
    return Traced({call.id: call for call in sorted(calls, key=lambda call: call.started_at)}, strays)


def _call(id: str, servings: list[Serving], rejections: list[RejectedLine]) -> TracedCall:
    rounds: list[Round] = []
    for serving in servings:
        out = _question_round(rounds, serving)
        if out is not None and out.answered_at is None:
            out.answered_at = serving.started_at
        for line in serving.happened:
            if out is not None and line.answers and out.read_by in (None, serving):
                out.read_by = serving
                out.answers.extend(line.answers)
            if isinstance(line, AskedLine):
                out = Round(line, serving)
                rounds.append(out)
            elif isinstance(line, AnsweredLine) and out is not None:
                if line.keys:
                    out.answered_at = line.at
                else:
                    out.given_up_at = line.at
    return TracedCall(id, servings, rounds, rejections)


def _counting(servings: Sequence[Serving], *, before: float | None) -> Serving:
    """The serving of a leg that the client went on with; `before` is when the next leg began."""
    earlier = [serving for serving in servings if before is None or serving.started_at <= before]
    # By the clocks of several instances none may have been.
    candidates = earlier or list(servings)
    return max(enumerate(candidates), key=lambda item: (*_weight(item[1], goes_on=before is not None), item[0]))[1]


def _weight(serving: Serving, *, goes_on: bool) -> tuple[bool, ...]:
    """What tells for a serving, of several of one leg; of those alike the last counts."""
    last = serving.lines[-1]
    has_asked = isinstance(last, AskedLine)
    was_stopped = isinstance(last, EndedLine) and last.state in _RETRIABLE and not serving.has_run
    return (has_asked or not goes_on, serving.is_over and not was_stopped, bool(serving.brought), not serving.is_recall)


def _question_round(rounds: Sequence[Round], serving: Serving) -> Round | None:
    """The round that a leg brings the answers to: of a leg that was served twice, the last that was out by then."""
    earlier = [round_ for round_ in rounds if round_.serving.leg < serving.leg]
    if not earlier:
        return None
    candidates = [round_ for round_ in earlier if round_.serving.leg == earlier[-1].serving.leg]
    # By the clocks of several instances none may have been.
    return next((one for one in reversed(candidates) if one.asked.at <= serving.started_at), candidates[-1])
