"""Collect the facts of one serving and write them as lines of a transcript (see `lines.py`).

Every leg of a recorded server passes through this module, so lines are formatted as text: objects in between made
writing six times as slow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, ClassVar, Final, NamedTuple

from mcp_types import CallToolResult, CreateMessageRequest, ElicitRequest, ElicitRequestURLParams, ListRootsRequest

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
from roundtrip.questions.wire import FormQuestion, PendingQuestion, UrlQuestion
from roundtrip.system import System
from roundtrip.trace.writing.redaction import Redaction
from roundtrip.tracing import Beginning, Closed, DeclinedFact, Era, Raised, Returned, ServedFunction, Wrote

__all__ = ["TranscriptOutput", "TranscriptWriter", "subject_members"]

logger = logging.getLogger("roundtrip")

_END_STATES: Final = {state: state.value if state in CALL_MACHINE.final else State.FAILED.value for state in State}
"""The recorded state of a call that ended, by the state that its machine reached."""

_MOVES: Final = {(event, state): f'["{event}","{state}",' for (_, event), state in CALL_MACHINE.targets.items()}


class TranscriptOutput(NamedTuple):
    """Destination of lines: `write` takes each one, without a newline."""

    redaction: Redaction
    write: Callable[[str], None]
    system: System


class TranscriptWriter:
    """Watch of one serving that writes its lines."""

    # Most servings need few of these, so they are class attributes: slots would have to be filled each time.
    _asked: Transition | None = None
    _asked_at = 0.0
    _bodies = 0
    _uncovered = False
    _error: str | None = None
    _ignored = 0
    _journal: Journal | None = None
    _decline: str | None = None
    _result: tuple[Any] | None = None

    def __init__(self, beginning: Beginning, *, head: str, subject: str, output: TranscriptOutput) -> None:
        """Write the first line of a serving.

        Args:
            beginning: The first fact.
            head: The members that name the serving on each line: the instance, and the number of the serving.
            subject: The members of the first line that are the same for all servings of the function.
            output: Where lines go.
        """
        self._beginning = beginning
        self._redaction, self._write, system = output
        self._time, self._monotonic = system.time, system.monotonic
        self._started = self._monotonic()
        self._head = f'{head},"call":{quoted(beginning.call_id)},"leg":{beginning.leg}'
        self._round = beginning.round
        self._state = State.RECEIVED if beginning.journal is None else State.AWAITING_INPUT
        self._moves: list[tuple[Event, State, float]] = []
        self._gathered: dict[str, list[str]] = {}
        self._running: dict[str, float] = {}
        self._begin(subject)

    def __call__(self, fact: object) -> None:
        """Take one fact. Errors go to the log, and never to the call."""
        kind: type = type(fact)
        take = self._TAKES.get(kind)
        if take is None:
            return
        try:
            take(self, fact)
        except Exception:
            logger.exception("a transcript lacks a fact of type %s; the call is not affected", kind.__name__)

    # Facts.

    def _moved(self, transition: Transition) -> None:
        _, _, _, event, self._state, self._round, detail = transition
        self._moves.append((event, self._state, self._monotonic()))
        if event is Event.ASK:
            self._asked = transition
            if self._beginning.era == "live" and "authored" not in detail:
                self._write_asked(None)
                self._asked_at = self._ms()
        elif event is Event.RESUME and self._asked is not None:
            self._asked = None
            keys = array([self._name(key) for key in detail.get("keys", ())])
            self._write_line("answered", f'"keys":{keys},"waited":{max(0.0, self._ms() - self._asked_at):.3f}')

    def _run_began(self, fact: NodeBegan | StepBegan) -> None:
        self._running[fact.key] = self._ms()

    def _node_ended(self, fact: NodeEnded) -> None:
        self._gather("nodes", f'{{"key":{quoted(fact.key)},"how":"{fact.how}",{self._span(fact.key)}}}')

    def _body_began(self, fact: BodyBegan) -> None:
        self._bodies += 1
        self._uncovered = fact.uncovered

    def _step_ended(self, fact: StepEnded) -> None:
        value = "" if fact.how == "failed" else f',"value":{self._redaction.render("steps", fact.value)}'
        self._gather("steps", f'{{"key":{quoted(fact.key)},"how":"{fact.how}",{self._span(fact.key)}{value}}}')

    def _answer_read(self, fact: AnswerRead) -> None:
        action = "null" if fact.action is None else f'"{fact.action}"'
        data = "" if fact.data is None else f',"data":{self._redaction.render("answers", fact.data)}'
        self._gather_once("answers", f'{{"key":{self._name(fact.key)},"action":{action},"how":"{fact.how}"{data}}}')

    def _fixed(self, fact: Fixed) -> None:
        # In the retry era, the line of the token that carries the value has it.
        if self._beginning.era == "live":
            key = quoted(_computed_name(fact.key, self._redaction.name))
            self._gather("fixed", f'{{"key":{key},"value":{self._redaction.render("steps", fact.value)}}}')

    def _answer_reused(self, fact: AnswerReused) -> None:
        self._gather_once("reused", self._name(fact.key))

    def _answers_ignored(self, fact: AnswersIgnored) -> None:
        self._ignored += fact.number

    def _wrote(self, fact: Wrote) -> None:
        self._journal = fact.journal

    def _returned(self, fact: Returned) -> None:
        self._result = (fact.value,)

    def _raised(self, fact: Raised) -> None:
        # Keep the text only: the error's traceback refers to the whole leg, and to this watch.
        text = self._redaction.render("errors", str(fact.error))
        self._error = f'{{"type":{quoted(type(fact.error).__name__)},"text":{text}}}'

    def _declined(self, fact: DeclinedFact) -> None:
        self._decline = fact.reason

    def _closed(self, fact: Closed) -> None:
        if self._asked is not None and self._state is State.AWAITING_INPUT:
            self._write_asked(fact.token_bytes)
        else:
            self._write_ended()

    _TAKES: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        Transition: _moved,
        NodeBegan: _run_began,
        NodeEnded: _node_ended,
        BodyBegan: _body_began,
        StepBegan: _run_began,
        StepEnded: _step_ended,
        AnswerRead: _answer_read,
        AnswerReused: _answer_reused,
        AnswersIgnored: _answers_ignored,
        Fixed: _fixed,
        Wrote: _wrote,
        Returned: _returned,
        Raised: _raised,
        DeclinedFact: _declined,
        Closed: _closed,
    }

    # Lines.

    def _begin(self, subject: str) -> None:
        beginning = self._beginning
        journal = beginning.journal
        line = f'{subject},"arguments":{self._redaction.render("arguments", beginning.arguments)}'
        if beginning.principal is not None:
            line += f',"principal":"{self._redaction.fingerprint(beginning.principal)}"'
        if journal is not None and journal.build != beginning.subject.build:
            line += f',"previous_build":{quoted(journal.build)}'
        if beginning.token_bytes is not None:
            line += f',"token_bytes":{beginning.token_bytes}'
        if beginning.within is not None:
            line += f',"within":{quoted(beginning.within)}'
        if beginning.replaces is not None:
            line += f',"replaces":{quoted(beginning.replaces)}'
        self._write(f'{{"v":1,"event":"began","at":{self._time():.6f},{self._head},"round":{self._round},{line}}}')

    def _write_asked(self, token_bytes: int | None) -> None:
        asked = self._asked
        if asked is None:
            return
        detail = asked.detail
        by = "author" if "authored" in detail else "body" if asked.source is State.EXECUTING else "resolvers"
        if "questions" in detail:
            questions = [self._question(waiting) for waiting in detail["questions"]]
        else:
            questions = [
                f"{{{self._named(key, Reason.NEW)},{self._request(request)}}}"
                for key, request in detail.get("requests", {}).items()
            ]
        line = f'"by":"{by}","questions":{array(questions)}'
        if self._journal is not None:
            token = f'"bytes":{token_bytes or 0}'
            token += _difference(self._beginning.journal, self._journal, self._redaction.name)
            if self._journal.computed:
                token += self._computed(self._journal)
            line += f',"until":{self._journal.deadline:.3f},"token":{{{token}}}'
        self._write_line("asked", line)

    def _write_ended(self) -> None:
        line = f'"state":"{_END_STATES[self._state]}"'
        if self._result is not None:
            (value,) = self._result
            line += f',"result":{self._redaction.render("results", value)}'
            if isinstance(value, CallToolResult) and value.is_error:
                line += ',"is_error":true'
        if self._decline is not None:
            line += f',"decline":{quoted(self._redaction.names_in(self._decline))}'
        if self._error is not None:
            line += f',"error":{self._error}'
        self._write_line("ended", line)

    def _write_line(self, event: str, line: str) -> None:
        started = self._started
        happened = ""
        if self._moves:
            moves = [f"{_MOVES[event, state]}{(at - started) * 1000:.3f}]" for event, state, at in self._moves]
            happened = f'"moves":{array(moves)},'
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
        self._write(
            f'{{"v":1,"event":"{event}","at":{self._time():.6f},{self._head},"round":{self._round},'
            f'"ms":{(self._monotonic() - started) * 1000:.3f},{happened}{line}}}'
        )

    # Parts of lines.

    def _question(self, waiting: PendingQuestion) -> str:
        question, render = waiting.question, self._redaction.render
        if isinstance(question, FormQuestion):
            form = question.form
            schema = (
                self._redaction.render_cached("questions", form.digest, form.schema)
                if isinstance(form, Form)
                else render("questions", form.schema)
            )
            shown = f'"kind":"form","message":{render("questions", question.text)},"form":{schema}'
            filled = form.valid_fields(waiting.seed) if waiting.seed is not None and isinstance(form, Form) else None
            if filled:
                shown += f',"filled":{render("answers", filled)}'
        elif isinstance(question, UrlQuestion):
            shown = _page(render("questions", question.text), render("questions", question.url))
        else:
            shown = self._request(question.request())
        if waiting.changed:
            shown += f',"changed":{array([quoted(part) for part in waiting.changed])}'
        if waiting.former is not None:
            shown += f',"former":{self._name(waiting.former)}'
        if waiting.asked.attempts:
            shown += f',"attempt":{waiting.asked.attempts + 1}'
        if waiting.complaint is not None:
            shown += f',"complaint":{render("answers", waiting.complaint)}'
        return f"{{{self._named(waiting.key, waiting.reason)},{shown}}}"

    def _computed(self, journal: Journal) -> str:
        """Return the values that the server fixed on this leg, as a member of an object."""
        before = self._beginning.journal
        known: Mapping[str, Any] = before.computed if before is not None else {}
        fixed = [
            f"{quoted(_computed_name(key, self._redaction.name))}:{self._redaction.render('steps', computed.value)}"
            for key, computed in journal.computed.items()
            if known.get(key) != computed
        ]
        return f',"computed":{{{",".join(fixed)}}}' if fixed else ""

    def _request(self, request: Any) -> str:
        """Return the members of a question from its form on the wire."""
        render = self._redaction.render
        if isinstance(request, ElicitRequest):
            params = request.params
            message = render("questions", params.message)
            if isinstance(params, ElicitRequestURLParams):
                return _page(message, render("questions", params.url))
            return f'"kind":"form","message":{message},"form":{render("questions", params.requested_schema)}'
        if isinstance(request, CreateMessageRequest):
            return f'"kind":"sample","message":{render("questions", request.params)}'
        return '"kind":"roots"' if isinstance(request, ListRootsRequest) else '"kind":"form"'

    def _named(self, key: str, reason: Reason) -> str:
        return f'"key":{self._name(key)},"reason":"{reason}"'

    def _name(self, key: str) -> str:
        return quoted(self._redaction.name(key))

    def _gather(self, part: str, item: str) -> None:
        gathered = self._gathered.get(part)
        if gathered is None:
            self._gathered[part] = [item]
        else:
            gathered.append(item)

    def _gather_once(self, part: str, item: str) -> None:
        if item not in self._gathered.get(part, ()):
            self._gather(part, item)

    def _span(self, key: str) -> str:
        now = self._ms()
        start = self._running.pop(key, now)
        return f'"start":{start:.3f},"ms":{now - start:.3f}'

    def _ms(self) -> float:
        return (self._monotonic() - self._started) * 1000


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
