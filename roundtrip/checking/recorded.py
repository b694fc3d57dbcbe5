"""Recorded calls for replay: each round's questions and answers, and the call's end."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from itertools import count, islice, takewhile
from typing import Any, Final, Literal, TypeVar, get_origin

from pydantic import JsonValue

from roundtrip.approvals.markers import ApprovalQuestion, Approve
from roundtrip.errors import (
    AnsweredOtherwise,
    CallerMissing,
    CallUncovered,
    CapabilityMissing,
    Decision,
    IntentUnreadable,
    OtherArguments,
    QuestionVolatile,
    StillRunning,
    ToolTimedOut,
)
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import ACTIONS, Action
from roundtrip.machine.pins import PAGE, SAMPLE, SAMPLE_WITH_TOOLS, digest
from roundtrip.questions.forms import digest_of_form
from roundtrip.questions.markers import ListRoots
from roundtrip.questions.wire import (
    TICKET_SHOWN,
    FormQuestion,
    PendingQuestion,
    RootsQuestion,
    SampleQuestion,
    UrlQuestion,
    digest_of_page,
)
from roundtrip.trace.reading.calls import Serving, TracedCall
from roundtrip.trace.writing.lines import (
    AskedLine,
    Digested,
    EndedLine,
    ReadAnswer,
    ReadDecision,
    Recorded,
    Revealed,
    ShownQuestion,
)

T = TypeVar("T")

Kind = Literal["form", "page", "sample", "roots"]

_HOW_TO_REVEAL: Final = (
    'record with Server(trace=Recorder(path, reveal="all")), or with ROUNDTRIP_TRACE_REVEAL=all in the environment'
)

_INTENT_ERRORS: Final = frozenset(
    error.__name__
    for error in (AnsweredOtherwise, CallerMissing, CallUncovered, IntentUnreadable, OtherArguments, StillRunning)
)
_UNREPEATABLE: Final = frozenset({"CancelledError", ToolTimedOut.__name__, QuestionVolatile.__name__}) | _INTENT_ERRORS
"""Errors that depend on time or on other calls, and therefore might not occur in a replay."""
_MAX_NAMED_LEGS: Final = 5


class NotReplayable(Exception):
    """A call that cannot be replayed. The message contains the reason and advice."""


@dataclass(frozen=True, slots=True)
class SeenQuestion:
    """A question as the client saw it, or an approval as its group saw it."""

    key: str
    kind: Kind | Literal["approval"]
    message: JsonValue = None
    """The question's text, or the parameters of a sampling request."""
    form: Mapping[str, Any] | None = None
    filled: Mapping[str, Any] | None = None
    """The valid fields of the last answer, which the form shows as defaults. This is set only if the call was read with
    `whole=True`.
    """
    url: str | None = None
    reason: Reason = Reason.NEW
    attempt: int = 1
    complaint: str | None = None
    """The error in the last answer. This is set only if the call was read with `whole=True`."""
    by: str | None = None
    """The group that decides, if this is an approval."""

    @property
    def digests(self) -> tuple[bytes, bytes]:
        """Return the digests of the message and the schema. An answer's pin is computed from them."""
        if self.kind == "form":
            return digest(str(self.message)), digest_of_form(self.form or {})
        if self.kind == "page":
            # A page's pin covers the address without the ticket.
            return digest_of_page(str(self.message), (self.url or "").replace(TICKET_SHOWN, "rt1")), PAGE
        if self.kind == "approval":
            approval = ApprovalQuestion(Approve(str(self.message), by=str(self.by)))
            return approval.message, approval.schema
        if self.kind == "roots":
            roots = RootsQuestion(ListRoots())
            return roots.message, roots.schema
        text = json.dumps(self.message, sort_keys=True, separators=(",", ":"))
        return digest(text), SAMPLE_WITH_TOOLS if self.with_tools else SAMPLE

    @property
    def with_tools(self) -> bool:
        """Return True if this is a sampling request whose answer may use tools."""
        params = self.message if isinstance(self.message, dict) else {}
        return "tools" in params or "toolChoice" in params

    @classmethod
    def of(cls, waiting: PendingQuestion) -> "SeenQuestion":
        """Describe a question that the current code asks."""
        key, reason, question = waiting.key, waiting.reason, waiting.question
        match question:
            case FormQuestion():
                return cls(key, "form", question.text, form=question.form.schema, reason=reason)
            case UrlQuestion():
                return cls(key, "page", question.text, url=question.url, reason=reason)
            case SampleQuestion():
                return cls(key, "sample", question.plain(question.params), reason=reason)
            case ApprovalQuestion():
                return cls(key, "approval", question.text, reason=reason, by=question.by)
            case _:
                return cls(key, "roots", reason=reason)


@dataclass(frozen=True, slots=True)
class Answer:
    """The client's answer to a question."""

    question: SeenQuestion
    action: Action | None
    """None for an unreadable answer."""
    how: Literal["taken", "invalid", "lost"]
    data: JsonValue = None


@dataclass(slots=True)
class RecordedRound:
    """One round: questions with their answers, or a wait for approvals with the decisions."""

    number: int
    leg: int
    by: Literal["resolvers", "body", "author"]
    questions: Mapping[str, SeenQuestion]
    computed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The step results and `remember=True` values that were fixed before this round, if recorded."""
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    approvals: Mapping[str, SeenQuestion] = field(default_factory=dict[str, SeenQuestion])
    """The approvals for which the call waited. A round with approvals has no questions."""
    decisions: dict[str, Decision] = field(default_factory=dict[str, Decision])


class RoundEnding(Enum):
    """A call's end, after its last round."""

    BODY = "body"
    DECLINED = "declined"
    FAILED = "failed"
    UNASKABLE = "unaskable"
    """The client did not declare the capability."""
    WAITS = "waits"
    """The answers or the approval decisions never arrived."""
    UNANSWERED = "unanswered"
    """The client answered a question with a protocol error, and so the call failed. This happens only in the live era.
    """
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call, with its revealed values."""

    id: str
    method: str
    name: str
    version: str | None
    era: Literal["retry", "live"]
    is_task: bool
    """True if the call became a task."""
    build: str
    arguments: Mapping[str, Any]
    rounds: tuple[RecordedRound, ...]
    ending: RoundEnding
    ended: EndedLine | None
    has_intent: bool = False
    """True if the tool has `once_per=`."""
    is_stopped: bool = False
    """True if the call ended outside of a leg: the client or an operator cancelled it, or it expired."""

    @property
    def client_rounds(self) -> tuple[RecordedRound, ...]:
        """Return the rounds that the client saw, without waits for approvals."""
        return tuple(round_ for round_ in self.rounds if not round_.approvals)

    @property
    def resolver_rounds(self) -> tuple[RecordedRound, ...]:
        """Return the rounds before the body's first question."""
        return tuple(takewhile(lambda round_: round_.by == "resolvers", self.rounds))

    @property
    def asked_by_body(self) -> RecordedRound | None:
        """Return the body's first round."""
        return next(iter(self.rounds[len(self.resolver_rounds) :]), None)

    @property
    def reached_body(self) -> bool:
        """Return True if all parameters were filled."""
        began = self.ended is not None and self.ended.bodies > 0
        return began or self.ending is RoundEnding.BODY or self.asked_by_body is not None

    @property
    def kinds(self) -> frozenset[Kind]:
        """Return the question kinds that the client could answer."""
        asked = [question for round_ in self.rounds for question in round_.questions.values()]
        return frozenset(question.kind for question in asked if question.kind != "approval")


def recorded_call(call: TracedCall, *, whole: bool = False) -> RecordedCall:
    """Read a call from a transcript.

    Args:
        call: The call.
        whole: True to also require the body's questions and the result.

    Raises:
        NotReplayable: The transcript lacks something that the replay needs.
    """
    began = call.began
    if began is None or (call.servings and call.servings[0].leg != 1):
        raise NotReplayable("its start is not in these transcripts; also pass the older files")
    if began.within is not None or began.era == "direct":
        raise NotReplayable("the server itself made this call, while it served another call")
    if began.arguments is None:
        raise NotReplayable("the transcript has no arguments")
    if (idle := why_nothing_ran(call)) is not None:
        raise NotReplayable(idle)
    chain = _chain(call, whole=whole)
    rounds = _rounds(chain, whole=whole)
    last = chain[-1].lines[-1]
    return RecordedCall(
        id=call.id,
        method=began.method,
        name=began.tool,
        version=began.version,
        # Rehearse a task like a call in the retry era, in which the client sends a new request for each leg.
        era="live" if began.era == "live" else "retry",
        is_task=any(serving.is_handed for serving in call.servings),
        build=began.build,
        arguments=_revealed_as(dict[str, Any], began.arguments) or {},
        rounds=tuple(rounds),
        ending=_ending(chain[-1], rounds),
        ended=last if isinstance(last, EndedLine) else None,
        has_intent=any(serving.intent is not None for serving in chain),
        is_stopped=call.stopped is not None or call.ended_by is not None,
    )


def why_nothing_ran(call: TracedCall) -> str | None:
    """Return the reason if a call's intent (`once_per=`) kept it from running; else None."""
    found = call.chain[0].intent if call.chain else None
    if found is not None and found.recalled_from is not None:
        return f"nothing ran in it, because it got the end of call {found.recalled_from!r}; choose that call"
    error = call.ended.error_type if call.ended is not None and not call.rounds else None
    return f"nothing ran in it, because of its intent ({error})" if error in _INTENT_ERRORS else None


def _chain(call: TracedCall, *, whole: bool) -> list[Serving]:
    """Return one attempt for each leg: the attempt whose response the client acted on."""
    chain = call.chain
    legs = {serving.leg for serving in chain}
    missing = max(legs) - len(legs)
    if missing:
        # A corrupt leg number may imply a huge number of missing legs, so list only some of them.
        named = islice((leg for leg in count(1) if leg not in legs), min(missing, _MAX_NAMED_LEGS))
        numbers = ", ".join(map(str, named)) + (", ..." if missing > _MAX_NAMED_LEGS else "")
        raise NotReplayable(f"leg {numbers} is not in these transcripts; pass the files of all instances")
    if chain[-1].is_recall:
        last = chain[-1].leg
        if whole:
            raise NotReplayable(
                f"leg {last} got its result from the ledger, and these transcripts do not show how its body ran; "
                "pass the files of all instances"
            )
        # Check only the answers before this leg, because the transcript does not show the effect of this leg's answers.
        return chain[:-1]
    return chain


def _rounds(chain: list[Serving], *, whole: bool) -> list[RecordedRound]:
    rounds: list[RecordedRound] = []
    computed: dict[str, Any] = {}
    for serving in chain:
        for line in serving.happened:
            if rounds:
                _take_answers(rounds[-1], line.answers, known=whole or rounds[-1].by == "resolvers")
                _take_decisions(rounds, line.decisions)
            computed |= {fixed.key: fixed.value.value for fixed in line.fixed if isinstance(fixed.value, Revealed)}
            # In the live era, no token contains the step results, so take them from the lines.
            computed |= {step.key: step.value.value for step in line.steps if isinstance(step.value, Revealed)}
            if not isinstance(line, AskedLine):
                continue
            written = line.token.computed if line.token is not None else {}
            computed |= {key: kept.value for key, kept in written.items() if isinstance(kept, Revealed)}
            if not whole and not line.questions and not line.approvals and line.by == "resolvers":
                # This round had no questions. It only gave the call an ID for the ledger.
                continue
            known = whole or line.by == "resolvers"
            questions = {shown.key: _question(shown, whole=whole) for shown in line.questions} if known else {}
            approvals = {
                shown.key: SeenQuestion(shown.key, "approval", revealed(shown.message), by=shown.by)
                for shown in (line.approvals if known else ())
            }
            if serving.intent is not None and questions and not _take_joined(rounds, questions):
                continue
            round_ = RecordedRound(line.round, serving.leg, line.by, questions, dict(computed), approvals=approvals)
            rounds.append(round_)
    return rounds


def _take_joined(rounds: list[RecordedRound], questions: dict[str, SeenQuestion]) -> bool:
    """Combine a round with earlier rounds that other requests with the same intent got. Return False if nothing is left
    of the round.

    A client that begins again gives its earlier answers again. The replay has only one client, which gives them once.
    """
    known = {key for round_ in rounds for key, answer in round_.answers.items() if answer.how == "taken"}
    for key in known & questions.keys():
        if questions[key].reason in (Reason.NEW, Reason.MISSING):
            del questions[key]
    if rounds and not rounds[-1].answers and rounds[-1].questions.keys() <= questions.keys() and questions:
        rounds.pop()
    return bool(questions)


def _take_answers(round_: RecordedRound, answers: tuple[ReadAnswer, ...], *, known: bool) -> None:
    for read in answers:
        question = round_.questions.get(read.key)
        if question is None and known and len(round_.questions) == 1 and not round_.answers:
            # The question was renamed, and the answer is recorded under the new name.
            (question,) = round_.questions.values()
        if question is None:
            continue
        action = ACTIONS[read.action] if read.action is not None else None
        # If several answers to a question are recorded, keep the answer that counted.
        if question.key not in round_.answers or read.how == "taken":
            round_.answers[question.key] = Answer(question, action, read.how, revealed(read.data))


def _take_decisions(rounds: list[RecordedRound], decisions: tuple[ReadDecision, ...]) -> None:
    """Add each decision to the latest round that waited for its approval. Every later leg reads the decisions again, so
    a decision may be recorded several times.
    """
    for read in decisions:
        round_ = next((round_ for round_ in reversed(rounds) if read.key in round_.approvals), None)
        if round_ is None or read.key in round_.decisions:
            continue
        # Code can read the approver and the reason only after an approval, so these values are not required for a
        # rejection.
        is_needed = read.outcome == "approved" or isinstance(read.data, Revealed)
        person = _revealed_as(dict[str, Any], read.data) if is_needed else None
        who, reason = (
            text if isinstance(text := (person or {}).get(name), str) else None for name in ("who", "reason")
        )
        round_.decisions[read.key] = Decision(read.outcome, datetime.fromtimestamp(read.at, UTC), who, reason)


def _question(shown: ShownQuestion, *, whole: bool) -> SeenQuestion:
    return SeenQuestion(
        shown.key,
        shown.kind,
        revealed(shown.message),
        form=_revealed_as(dict[str, Any], shown.form),
        filled=_revealed_as(dict[str, Any], shown.filled if whole else None),
        url=_revealed_as(str, shown.url),
        reason=shown.reason,
        attempt=shown.attempt,
        complaint=_revealed_as(str, shown.complaint if whole else None),
    )


def _revealed_as(kind: type[T], kept: Recorded | None) -> T | None:
    """Return a revealed transcript value if it has the given type, else None."""
    value: Any = revealed(kept)
    return value if isinstance(value, get_origin(kind) or kind) else None


def _ending(last: Serving, rounds: list[RecordedRound]) -> RoundEnding:
    line = last.lines[-1]
    if isinstance(line, AskedLine):
        # If resolvers end a round without questions, the body runs next.
        waits = line.questions or line.approvals or line.by != "resolvers"
        return RoundEnding.WAITS if waits else RoundEnding.BODY
    if not isinstance(line, EndedLine):
        return RoundEnding.UNKNOWN
    if line.state == "rejected" and line.error_type == CapabilityMissing.__name__:
        return RoundEnding.UNASKABLE
    if line.state == "rejected" or line.error_type in _UNREPEATABLE:
        return RoundEnding.UNKNOWN
    before = last.happened[-2:-1]
    if any(isinstance(asked, AskedLine) and asked.by == "resolvers" for asked in before):
        return RoundEnding.UNANSWERED
    if line.state == "completed" or line.bodies or any(round_.by != "resolvers" for round_ in rounds):
        return RoundEnding.BODY
    return RoundEnding.DECLINED if line.state == "declined" else RoundEnding.FAILED


def revealed(kept: Recorded | None) -> JsonValue:
    """Return a transcript value, or None.

    Raises:
        NotReplayable: The value was not revealed.
    """
    if isinstance(kept, Digested):
        raise NotReplayable(f"its values are not revealed; {_HOW_TO_REVEAL}")
    return kept.value if kept is not None else None
