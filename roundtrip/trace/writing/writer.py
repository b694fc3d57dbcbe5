"""One serving on its way into a transcript: facts are gathered, and told in lines (see `lines.py`).

Every leg of a recorded server comes through here, so lines are put together as text: with objects in between, writing
them cost six times as much.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, ClassVar, Final

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
from roundtrip.trace.writing.redaction import Redaction
from roundtrip.tracing import Beginning, Closed, DeclinedFact, Era, Raised, Returned, ServedFunction, Wrote

__all__ = ["TranscriptWriter", "subject_members"]

logger = logging.getLogger("roundtrip")

Write = Callable[[str], None]

_STATES: Final = {state: state.value if state in CALL_MACHINE.final else State.FAILED.value for state in State}
"""What a call that has ended is said to be."""

_MOVES: Final = {(event, state): f'["{event}","{state}",' for (_, event), state in CALL_MACHINE.targets.items()}


class TranscriptWriter:
    """Watches one serving, and writes its lines."""

    # Most servings need few of these, so they are no slots that each would have to fill.
    _asked: Transition | None = None
    _asked_at = 0.0
    _bodies = 0
    _uncovered = False
    _error: str | None = None
    _ignored = 0
    _journal: Journal | None = None
    _decline: str | None = None
    _result: tuple[Any] | None = None

    def __init__(self, beginning: Beginning, *, head: str, subject: str, redaction: Redaction, write: Write) -> None:
        """Watch a serving.

        Args:
            beginning: What there is to tell of it when it begins.
            head: The members of each line that name it: the instance, and the number of the serving.
            subject: The members of its first line that are the same for all servings of the function.
            redaction: Puts confidential values.
            write: Takes each line, without a newline.
        """
        self._beginning = beginning
        self._redaction = redaction
        self._write = write
        self._started = time.perf_counter()
        self._head = f'{head},"call":{quoted(beginning.call_id)},"leg":{beginning.leg}'
        self._round = beginning.round
        self._state = State.RECEIVED if beginning.journal is None else State.AWAITING_INPUT
        self._moves: list[tuple[Event, State, float]] = []
        self._gathered: dict[str, list[str]] = {}
        self._running: dict[str, float] = {}
        self._begin(subject)

    def __call__(self, fact: object) -> None:
        """Take one fact in. What goes wrong is told to the log, and not to the call."""
        kind: type = type(fact)
        take = self._TAKES.get(kind)
        if take is None:
            return
        try:
            take(self, fact)
        except Exception:
            logger.exception("a transcript lacks what was told as %s; the call is not affected", kind.__name__)

    # Facts.

    def _moved(self, step: Transition) -> None:
        _, _, _, event, self._state, self._round, detail = step
        self._moves.append((event, self._state, time.perf_counter()))
        if event is Event.ASK:
            self._asked = step
            if self._beginning.era == "live" and "authored" not in detail:
                self._tell_asked(None)
                self._asked_at = self._ms()
        elif event is Event.RESUME and self._asked is not None:
            self._asked = None
            keys = array([self._name(key) for key in detail.get("keys", ())])
            self._tell("answered", f'"keys":{keys},"waited":{max(0.0, self._ms() - self._asked_at):.3f}')

    def _node_began(self, fact: NodeBegan) -> None:
        self._running[fact.key] = self._ms()

    def _node_ended(self, fact: NodeEnded) -> None:
        self._gather("nodes", f'{{"key":{quoted(fact.key)},"how":"{fact.how}",{self._span(fact.key)}}}')

    def _body_began(self, fact: BodyBegan) -> None:
        self._bodies += 1
        self._uncovered = fact.uncovered

    def _step_began(self, fact: StepBegan) -> None:
        self._running[fact.key] = self._ms()

    def _step_ended(self, fact: StepEnded) -> None:
        value = "" if fact.how == "failed" else f',"value":{self._redaction.put("steps", fact.value)}'
        self._gather("steps", f'{{"key":{quoted(fact.key)},"how":"{fact.how}",{self._span(fact.key)}{value}}}')

    def _answer_read(self, fact: AnswerRead) -> None:
        action = "null" if fact.action is None else f'"{fact.action}"'
        data = "" if fact.data is None else f',"data":{self._redaction.put("answers", fact.data)}'
        self._gather_once("answers", f'{{"key":{self._name(fact.key)},"action":{action},"how":"{fact.how}"{data}}}')

    def _fixed(self, fact: Fixed) -> None:
        # In the retry era it is told with the token that takes it along.
        if self._beginning.era == "live":
            key = quoted(_computed_name(fact.key, self._redaction.name))
            self._gather("fixed", f'{{"key":{key},"value":{self._redaction.put("steps", fact.value)}}}')

    def _answer_reused(self, fact: AnswerReused) -> None:
        self._gather_once("reused", self._name(fact.key))

    def _answers_ignored(self, fact: AnswersIgnored) -> None:
        self._ignored += fact.number

    def _wrote(self, fact: Wrote) -> None:
        self._journal = fact.journal

    def _returned(self, fact: Returned) -> None:
        self._result = (fact.value,)

    def _raised(self, fact: Raised) -> None:
        # Not the error itself, whose traceback holds all of the leg, this watch of it too.
        text = self._redaction.put("errors", str(fact.error))
        self._error = f'{{"type":{quoted(type(fact.error).__name__)},"text":{text}}}'

    def _declined(self, fact: DeclinedFact) -> None:
        self._decline = fact.reason

    def _closed(self, fact: Closed) -> None:
        if self._asked is not None and self._state is State.AWAITING_INPUT:
            self._tell_asked(fact.token_bytes)
        else:
            self._end()

    _TAKES: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        Transition: _moved,
        NodeBegan: _node_began,
        NodeEnded: _node_ended,
        BodyBegan: _body_began,
        StepBegan: _step_began,
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
        line = f'{subject},"arguments":{self._redaction.put("arguments", beginning.arguments)}'
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
        self._write(f'{{"v":1,"event":"began","at":{time.time():.6f},{self._head},"round":{self._round},{line}}}')

    def _tell_asked(self, token_bytes: int | None) -> None:
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
        self._tell("asked", line)

    def _end(self) -> None:
        line = f'"state":"{_STATES[self._state]}"'
        if self._result is not None:
            (value,) = self._result
            line += f',"result":{self._redaction.put("results", value)}'
            if isinstance(value, CallToolResult) and value.is_error:
                line += ',"is_error":true'
        if self._decline is not None:
            line += f',"decline":{quoted(self._redaction.names_in(self._decline))}'
        if self._error is not None:
            line += f',"error":{self._error}'
        self._tell("ended", line)

    def _tell(self, event: str, line: str) -> None:
        started = self._started
        happened = ""
        if self._moves:
            moves = [f"{_MOVES[event, state]}{(at - started) * 1000:.3f}]" for event, state, at in self._moves]
            happened = f'"moves":{array(moves)},'
            self._moves = []
        if self._gathered:
            happened += "".join([f'"{part}":{array(what)},' for part, what in self._gathered.items()])
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
            f'{{"v":1,"event":"{event}","at":{time.time():.6f},{self._head},"round":{self._round},'
            f'"ms":{(time.perf_counter() - started) * 1000:.3f},{happened}{line}}}'
        )

    # Parts of lines.

    def _question(self, waiting: PendingQuestion) -> str:
        question, put = waiting.question, self._redaction.put
        if isinstance(question, FormQuestion):
            form = question.form
            schema = (
                self._redaction.put_known("questions", form.digest, form.schema)
                if isinstance(form, Form)
                else put("questions", form.schema)
            )
            shown = f'"kind":"form","message":{put("questions", question.text)},"form":{schema}'
            filled = form.valid_fields(waiting.seed) if waiting.seed is not None and isinstance(form, Form) else None
            if filled:
                shown += f',"filled":{put("answers", filled)}'
        elif isinstance(question, UrlQuestion):
            shown = f'"kind":"page","message":{put("questions", question.text)},"url":{put("questions", question.url)}'
        else:
            shown = self._request(question.wire)
        if waiting.changed:
            shown += f',"changed":{array([quoted(part) for part in waiting.changed])}'
        if waiting.former is not None:
            shown += f',"former":{self._name(waiting.former)}'
        if waiting.asked.attempts:
            shown += f',"attempt":{waiting.asked.attempts + 1}'
        if waiting.complaint is not None:
            shown += f',"complaint":{put("answers", waiting.complaint)}'
        return f"{{{self._named(waiting.key, waiting.reason)},{shown}}}"

    def _computed(self, journal: Journal) -> str:
        """What the server has fixed on this leg."""
        before = self._beginning.journal
        known: Mapping[str, Any] = before.computed if before is not None else {}
        fixed = [
            f"{quoted(_computed_name(key, self._redaction.name))}:{self._redaction.put('steps', computed.value)}"
            for key, computed in journal.computed.items()
            if known.get(key) != computed
        ]
        return f',"computed":{{{",".join(fixed)}}}' if fixed else ""

    def _request(self, request: Any) -> str:
        """A question as the wire has it."""
        put = self._redaction.put
        if isinstance(request, ElicitRequest):
            params = request.params
            message = put("questions", params.message)
            if isinstance(params, ElicitRequestURLParams):
                return f'"kind":"page","message":{message},"url":{put("questions", params.url)}'
            return f'"kind":"form","message":{message},"form":{put("questions", params.requested_schema)}'
        if isinstance(request, CreateMessageRequest):
            return f'"kind":"sample","message":{put("questions", request.params)}'
        return '"kind":"roots"' if isinstance(request, ListRootsRequest) else '"kind":"form"'

    def _named(self, key: str, reason: Reason) -> str:
        return f'"key":{self._name(key)},"reason":"{reason}"'

    def _name(self, key: str) -> str:
        return quoted(self._redaction.name(key))

    def _gather(self, part: str, what: str) -> None:
        gathered = self._gathered.get(part)
        if gathered is None:
            self._gathered[part] = [what]
        else:
            gathered.append(what)

    def _gather_once(self, part: str, what: str) -> None:
        if what not in self._gathered.get(part, ()):
            self._gather(part, what)

    def _span(self, key: str) -> str:
        now = self._ms()
        start = self._running.pop(key, now)
        return f'"start":{start:.3f},"ms":{now - start:.3f}'

    def _ms(self) -> float:
        return (time.perf_counter() - self._started) * 1000


def subject_members(subject: ServedFunction, era: Era, protocol: str | None) -> str:
    """What the first line of a serving says of its function, as members of an object."""
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
    """JSON texts as one array."""
    return f"[{','.join(items)}]"


def _difference(before: Journal | None, after: Journal, name: Callable[[str], str]) -> str:
    """What is held that was not, no more, or otherwise than before, as members of an object."""
    old = _parts(before, name) if before is not None else {}
    new = _parts(after, name)
    difference = {
        "added": [quoted(part) for part in new if part not in old],
        "dropped": [quoted(part) for part in old if part not in new],
        "changed": [quoted(part) for part, value in new.items() if part in old and old[part] != value],
    }
    return "".join([f',"{how}":{array(parts)}' for how, parts in difference.items() if parts])


def _computed_name(key: str, name: Callable[[str], str]) -> str:
    # What stands in for an answer has the question's name behind a mark.
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
