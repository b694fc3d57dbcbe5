"""Write the facts of one serving as lines of a transcript (see `lines.py`).

Every leg of a recorded server passes through this module, so lines are formatted as text: objects in between made
writing six times as slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, ClassVar, Final, NamedTuple, cast

from mcp_types import CreateMessageRequest, ElicitRequest, ElicitRequestURLParams, ListRootsRequest

from roundtrip.engine.ports import Wait
from roundtrip.errors import Decision
from roundtrip.machine.call import Transition
from roundtrip.machine.facts import (
    AnswerRead,
    AnswerReused,
    AnswersIgnored,
    BodyBegan,
    Fixed,
    NodeBegan,
    NodeEnded,
    Reason,
    StepBegan,
    StepEnded,
)
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import CALL_MACHINE, Event, State
from roundtrip.questions.forms import Form
from roundtrip.questions.wire import ExternalQuestion, FormQuestion, PendingQuestion, UrlQuestion
from roundtrip.trace.writing.redaction import Redaction, Taken
from roundtrip.tracing import Beginning, Closed, DeclinedFact, Era, HandedFact, ServedFunction

_END_STATES: Final = {state: state.value if state in CALL_MACHINE.final else State.FAILED.value for state in State}
"""The recorded state of a call that ended, by the state that its machine reached."""

_MOVES: Final = {(event, state): f'["{event}","{state}",' for (_, event), state in CALL_MACHINE.targets.items()}


class ReadJournal(NamedTuple):
    """Fact `Wrote`, with the values that may change."""

    journal: Journal
    fixed: str
    """The values that the server fixed on this leg, as a member of an object."""


class ReadResult(NamedTuple):
    """Fact `Returned`, with the values that may change."""

    taken: Taken
    is_error: bool


class ReadApproval(NamedTuple):
    """Decision that was read, with what is needed of its person and reason to record it."""

    key: str
    by: str
    decision: Decision
    taken: Taken


class ReadError(NamedTuple):
    """Fact `Raised`, with the values that may change."""

    kind: str
    taken: Taken


class LineWriter:
    """Writer of the lines of one serving. The functions in `TAKES` get its facts in order, and may return a line."""

    # Most servings need few of these, so they are class attributes: slots would have to be filled each time.
    _asked: Transition | None = None
    _asked_ms = 0.0
    _bodies = 0
    _uncovered = False
    _error: str | None = None
    _ignored = 0
    _is_handed = False
    _journal: ReadJournal | None = None
    _decline: str | None = None
    _result: ReadResult | None = None

    def __init__(self, beginning: Beginning, *, head: str, redaction: Redaction, began_at: float) -> None:
        self._beginning = beginning
        self._redaction = redaction
        self._began_at = began_at
        self._head = f'{head},"call":{quoted(beginning.call_id)},"leg":{beginning.leg},"round":'
        self._round = beginning.round
        self._state = State.RECEIVED if beginning.journal is None else State.AWAITING_INPUT
        self._moves: list[str] = []
        self._gathered: dict[str, list[str]] = {}
        self._running: dict[str, float] = {}

    # Facts. `ms` is the time since the start of the serving.

    def _moved(self, transition: Transition, ms: float) -> str | None:
        _, _, _, event, self._state, self._round, detail = transition
        self._moves.append(f"{_MOVES[event, self._state]}{ms:.3f}]")
        if event is Event.ASK:
            self._asked = transition
            # Questions of an author, and those that no client is sent, end the leg: they are written with its token.
            if self._beginning.era == "live" and not {"authored", "channel", "external"} & detail.keys():
                self._asked_ms = ms
                return self._asked_line(None, ms)
        elif event is Event.RESUME and self._asked is not None:
            self._asked = None
            keys = array([self._name(key) for key in detail.get("keys", ())])
            return self._line("answered", f'"keys":{keys},"waited":{max(0.0, ms - self._asked_ms):.3f}', ms)
        return None

    def _run_began(self, fact: NodeBegan | StepBegan, ms: float) -> None:
        self._running[fact.key] = ms

    def _node_ended(self, fact: NodeEnded, ms: float) -> None:
        self._gather("nodes", f'{{"key":{quoted(fact.key)},"how":"{fact.how}",{self._span(fact.key, ms)}}}')

    def _body_began(self, fact: BodyBegan, ms: float) -> None:
        self._bodies += 1
        self._uncovered = fact.uncovered

    def _step_ended(self, fact: StepEnded, ms: float) -> None:
        value = "" if fact.how == "failed" else f',"value":{self._redaction.show(fact.value)}'
        self._gather("steps", f'{{"key":{quoted(fact.key)},"how":"{fact.how}",{self._span(fact.key, ms)}{value}}}')

    def _answer_read(self, fact: AnswerRead, ms: float) -> None:
        action = "null" if fact.action is None else f'"{fact.action}"'
        data = "" if fact.data is None else f',"data":{self._redaction.show(fact.data)}'
        self._gather_once("answers", f'{{"key":{self._name(fact.key)},"action":{action},"how":"{fact.how}"{data}}}')

    def _approval_read(self, fact: ReadApproval, ms: float) -> None:
        key, by, decision, taken = fact
        members = f'"key":{self._name(key)},"by":{quoted(by)},"outcome":"{decision.outcome}"'
        at = decision.when.timestamp()
        self._gather_once("decisions", f'{{{members},"at":{at:.3f},"data":{self._redaction.show(taken)}}}')

    def _fixed(self, fact: Fixed, ms: float) -> None:
        # In the retry era, the line of the token that carries the value has it.
        if self._beginning.era == "live":
            key = quoted(_computed_name(fact.key, self._redaction.name))
            self._gather("fixed", f'{{"key":{key},"value":{self._redaction.show(fact.value)}}}')

    def _answer_reused(self, fact: AnswerReused, ms: float) -> None:
        self._gather_once("reused", self._name(fact.key))

    def _answers_ignored(self, fact: AnswersIgnored, ms: float) -> None:
        self._ignored += fact.number

    def _wrote(self, read: ReadJournal, ms: float) -> None:
        self._journal = read

    def _returned(self, read: ReadResult, ms: float) -> None:
        self._result = read

    def _raised(self, read: ReadError, ms: float) -> None:
        self._error = f'{{"type":{quoted(read.kind)},"text":{self._redaction.show(read.taken)}}}'

    def _declined(self, fact: DeclinedFact, ms: float) -> None:
        self._decline = fact.reason

    def _handed(self, fact: HandedFact, ms: float) -> None:
        self._is_handed = True

    def _closed(self, fact: Closed, ms: float) -> str:
        if self._is_handed:
            return self._line("handed", '"to":"task"', ms)
        if self._asked is not None and self._state is State.AWAITING_INPUT:
            return self._asked_line(fact.token_bytes, ms)
        return self._ended_line(ms)

    TAKES: ClassVar[Mapping[type, Callable[[Any, Any, float], str | None]]] = {
        Transition: _moved,
        NodeBegan: _run_began,
        NodeEnded: _node_ended,
        BodyBegan: _body_began,
        StepBegan: _run_began,
        StepEnded: _step_ended,
        AnswerRead: _answer_read,
        AnswerReused: _answer_reused,
        AnswersIgnored: _answers_ignored,
        ReadApproval: _approval_read,
        Fixed: _fixed,
        ReadJournal: _wrote,
        ReadResult: _returned,
        ReadError: _raised,
        DeclinedFact: _declined,
        HandedFact: _handed,
        Closed: _closed,
    }

    # Lines.

    def began(self, subject: str, arguments: Taken) -> str:
        """Return the first line of the serving."""
        beginning = self._beginning
        journal = beginning.journal
        line = f'{subject},"arguments":{self._redaction.show(arguments)}'
        if beginning.principal is not None:
            line += f',"principal":"{self._redaction.fingerprint(beginning.principal)}"'
        if journal is not None and journal.build != beginning.subject.build:
            line += f',"previous_build":{quoted(journal.build)}'
        if beginning.takes_over:
            line += ',"takes_over":true'
        if beginning.token_bytes is not None:
            line += f',"token_bytes":{beginning.token_bytes}'
        if beginning.within is not None:
            line += f',"within":{quoted(beginning.within)}'
        return f'{{"v":1,"event":"began","at":{self._began_at:.6f},{self._head}{self._round},{line}}}'

    def _asked_line(self, token_bytes: int | None, ms: float) -> str:
        asked = self._asked
        if asked is None:
            raise RuntimeError("a line of questions has no questions")
        detail = asked.detail
        by = "author" if "authored" in detail else "body" if asked.source is State.EXECUTING else "resolvers"
        redaction = self._redaction
        questions = [one if isinstance(one, str) else shown_question(redaction, one) for one in detail["questions"]]
        line = f'"by":"{by}","questions":{array(questions)}'
        if "waits" in detail:
            line += f',"waits":{array([_shown_wait(redaction, wait) for wait in detail["waits"]])}'
        if "external" in detail:
            line += f',"approvals":{array([_asked_approval(redaction, one) for one in detail["external"]])}'
        if "channel" in detail:
            line += f',"rung":"{detail["channel"]}"'
        if self._journal is not None:
            journal, fixed = self._journal
            token = f'"bytes":{token_bytes or 0}{_difference(self._beginning.journal, journal, redaction.name)}{fixed}'
            # The store keeps a call that its client does not ask, or that others decide, for its whole life.
            is_stored = "channel" in detail or ("external" in detail and not detail["questions"])
            until = journal.end if is_stored else journal.deadline
            line += f',"until":{until:.3f},"token":{{{token}}}'
        return self._line("asked", line, ms)

    def _ended_line(self, ms: float) -> str:
        line = f'"state":"{_END_STATES[self._state]}"'
        if self._result is not None:
            taken, is_error = self._result
            line += f',"result":{self._redaction.show(taken)}'
            if is_error:
                line += ',"is_error":true'
        if self._decline is not None:
            line += f',"decline":{quoted(self._redaction.names_in(self._decline))}'
        if self._error is not None:
            line += f',"error":{self._error}'
        return self._line("ended", line, ms)

    def _line(self, event: str, line: str, ms: float) -> str:
        happened = ""
        if self._moves:
            happened = f'"moves":{array(self._moves)},'
            self._moves = []
        if self._gathered:
            happened += "".join([f'"{part}":{array(items)},' for part, items in self._gathered.items()])
            self._gathered = {}
        if self._bodies:
            happened += f'"bodies":{self._bodies},'
            self._bodies = 0
        if self._uncovered:
            happened += '"uncovered":true,'
            self._uncovered = False
        if self._ignored:
            happened += f'"ignored":{self._ignored},'
            self._ignored = 0
        return (
            f'{{"v":1,"event":"{event}","at":{self._began_at + ms / 1000:.6f},{self._head}{self._round},'
            f'"ms":{ms:.3f},{happened}{line}}}'
        )

    # Parts of lines.

    def _name(self, key: str) -> str:
        return quoted(self._redaction.name(key))

    def _gather(self, part: str, item: str) -> None:
        self._gathered.setdefault(part, []).append(item)

    def _gather_once(self, part: str, item: str) -> None:
        if item not in self._gathered.get(part, ()):
            self._gather(part, item)

    def _span(self, key: str, ms: float) -> str:
        start = self._running.pop(key, ms)
        return f'"start":{start:.3f},"ms":{ms - start:.3f}'


def _asked_approval(redaction: Redaction, waiting: PendingQuestion) -> str:
    question = cast("ExternalQuestion", waiting.question)
    message = redaction.render("questions", question.text)
    return f'{{"key":{quoted(redaction.name(waiting.key))},"by":{quoted(question.by)},"message":{message}}}'


def _shown_wait(redaction: Redaction, wait: Wait) -> str:
    parts = [] if wait.signal is None else [f'"signal":{quoted(redaction.name(wait.signal))}']
    parts += [] if wait.until is None else [f'"until":{wait.until:.3f}']
    return f"{{{','.join(parts)}}}"


def shown_question(redaction: Redaction, waiting: PendingQuestion) -> str:
    """Return a question as it was sent, with the reason for it."""
    question, render = waiting.question, redaction.render
    if isinstance(question, FormQuestion):
        form = question.form
        schema = (
            redaction.render_cached("questions", form.digest, form.schema)
            if isinstance(form, Form)
            else render("questions", form.schema)
        )
        shown = f'"kind":"form","message":{render("questions", question.text)},"form":{schema}'
        last = waiting.invalid_answer
        filled = form.valid_fields(last) if last is not None and isinstance(form, Form) else None
        if filled:
            shown += f',"filled":{render("answers", filled)}'
    elif isinstance(question, UrlQuestion):
        shown = _page(render("questions", question.text), render("questions", question.url))
    else:
        shown = shown_request(redaction, question.request())
    if waiting.changed:
        shown += f',"changed":{array([quoted(part) for part in waiting.changed])}'
    if waiting.former is not None:
        shown += f',"former":{quoted(redaction.name(waiting.former))}'
    if waiting.asked.attempts:
        shown += f',"attempt":{waiting.asked.attempts + 1}'
    if waiting.complaint is not None:
        shown += f',"complaint":{render("answers", waiting.complaint)}'
    return f"{{{named_question(redaction, waiting.key, waiting.reason)},{shown}}}"


def computed_values(redaction: Redaction, former: Journal | None, journal: Journal) -> str:
    """Return the values that the server fixed on this leg, as a member of an object."""
    known: Mapping[str, Any] = former.computed if former is not None else {}
    fixed = [
        f"{quoted(_computed_name(key, redaction.name))}:{redaction.render('steps', computed.value)}"
        for key, computed in journal.computed.items()
        if known.get(key) != computed
    ]
    return f',"computed":{{{",".join(fixed)}}}' if fixed else ""


def shown_request(redaction: Redaction, request: Any) -> str:
    """Return the members of a question from its form on the wire."""
    render = redaction.render
    if isinstance(request, ElicitRequest):
        params = request.params
        message = render("questions", params.message)
        if isinstance(params, ElicitRequestURLParams):
            return _page(message, render("questions", params.url))
        return f'"kind":"form","message":{message},"form":{render("questions", params.requested_schema)}'
    if isinstance(request, CreateMessageRequest):
        return f'"kind":"sample","message":{render("questions", request.params)}'
    return '"kind":"roots"' if isinstance(request, ListRootsRequest) else '"kind":"form"'


def named_question(redaction: Redaction, key: str, reason: Reason) -> str:
    """Return the members of a question that are the same for all kinds."""
    return f'"key":{quoted(redaction.name(key))},"reason":"{reason}"'


def subject_members(subject: ServedFunction, era: Era, protocol: str | None) -> str:
    """Return the members that describe the function on the first line of a serving."""
    members = (
        f'"method":"{subject.method}","tool":{quoted(subject.tool)},"era":"{era}",'
        f'"build":{quoted(subject.build)},"plan":{quoted(subject.plan)}'
    )
    if protocol is not None:
        members += f',"protocol":{quoted(protocol)}'
    if subject.version is not None:
        members += f',"version":{quoted(subject.version)}'
    return members


def array(items: list[str]) -> str:
    """Join JSON texts into an array."""
    return f"[{','.join(items)}]"


def _page(message: str, url: str) -> str:
    return f'"kind":"page","message":{message},"url":{url}'


def _difference(before: Journal | None, after: Journal, name: Callable[[str], str]) -> str:
    """Return the parts of a journal that were added, dropped and changed, as members of an object."""
    old = _parts(before, name) if before is not None else {}
    new = _parts(after, name)
    difference = {
        "added": [quoted(part) for part in new if part not in old],
        "dropped": [quoted(part) for part in old if part not in new],
        "changed": [quoted(part) for part, value in new.items() if part in old and old[part] != value],
    }
    return "".join([f',"{how}":{array(parts)}' for how, parts in difference.items() if parts])


def _computed_name(key: str, name: Callable[[str], str]) -> str:
    # The key of a stand-in for an answer is a mark and the question's name.
    mark = key[: len(key) - len(key.lstrip("~"))]
    return mark + name(key[len(mark) :])


def _parts(journal: Journal, name: Callable[[str], str]) -> dict[str, Any]:
    parts: dict[str, Any] = {f"answer:{name(key)}": entry for key, entry in journal.entries.items()}
    parts |= {f"asked:{name(key)}": asked for key, asked in journal.asked.items()}
    for key, computed in journal.computed.items():
        parts[f"computed:{_computed_name(key, name)}"] = computed
    if journal.authored is not None:
        parts["authored"] = journal.authored
    return parts
