"""Recording of legs: collect facts while a leg is served, and write their lines after the response has been sent.

Every leg on a recorded server passes through this module, so lines are formatted as text for speed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from mcp_types import CallToolResult

from roundtrip.machine import facts
from roundtrip.machine.call import Transition
from roundtrip.machine.facts import AnswerRead, ApprovalRead, Fixed, StepEnded
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import CALL_MACHINE, Event, State
from roundtrip.questions.wire import FormQuestion, UrlQuestion
from roundtrip.system import System
from roundtrip.trace.writing import writer
from roundtrip.trace.writing.redaction import Redaction, Taken, dumps
from roundtrip.trace.writing.writer import array, quoted, render_question
from roundtrip.tracing import Beginning, Closed, DeclinedFact, HandedFact, Raised, Returned, Wrote

logger = logging.getLogger("roundtrip")

_CONVERSATION_EVENTS: Final = frozenset((Event.ASK, Event.RESUME))
"""Question and answer events over an open connection."""
_END_STATES: Final = {state: state.value if state in CALL_MACHINE.final else State.FAILED.value for state in State}
"""For each last machine state, the end state that the transcript records."""
_MOVES: Final = {(event, state): f'["{event}","{state}",' for (_, event), state in CALL_MACHINE.targets.items()}


class RecordedServing:
    """Recorder's watch on one attempt at a leg. It keeps facts until the response has been sent, and then writes their
    lines.

    A value that may change before then is captured at once: as text if the value is revealed, otherwise as the bytes
    for its digest.

    Args:
        beginning: The first fact.
        head: The JSON members that identify the attempt on each line: the instance and the serving number.
        subject: The first line's JSON members that describe the function.
        redaction: Renders values.
        queue: Schedules a `write` call.
        system: The clock.
    """

    # These are class attributes, because most instances never set them, and creating instance attributes takes time.
    is_queued = False
    """True while facts are waiting to be written."""
    _asked: tuple[Transition, float] | None = None
    """The transition that asked the open questions, and its time since the attempt began."""
    _is_handed = False
    _has_intent = False
    """True if each round of questions ends the leg, also in the live era."""
    _journal: tuple[Journal, str] | None = None
    """The journal for the next token, and the values that the server fixed on this leg as a JSON member."""

    def __init__(
        self,
        beginning: Beginning,
        head: str,
        subject: str,
        redaction: Redaction,
        *,
        queue: Callable[[RecordedServing], None],
        system: System,
    ) -> None:
        self._beginning = beginning
        self._head = f'{head},"call":{quoted(beginning.call_id)},"leg":{beginning.leg},"round":'
        self._redaction = redaction
        self._queue = queue
        self._first_line: tuple[str, Taken] | None = subject, redaction.take("arguments", beginning.arguments)
        self._monotonic = system.monotonic
        self._began = system.time(), self._monotonic()
        """The time at which the attempt began, on the wall clock and on the monotonic clock."""
        self._facts: list[tuple[float, type, Any]] = []
        self._round = beginning.round
        self._state = State.RECEIVED if beginning.journal is None else State.AWAITING_INPUT
        self._lists: dict[str, list[str]] = {}
        self._scalars: dict[str, int | str] = {}
        self._end_members: dict[str, str] = {}
        self._run_starts: dict[str, float] = {}
        queue(self)

    @property
    def is_direct(self) -> bool:
        """Return True if the function was called directly, without a client's request."""
        return self._beginning.era == "direct"

    @property
    def _is_live(self) -> bool:
        return self._beginning.era == "live" and not self._has_intent

    def keep(self, fact: object) -> None:
        """Keep one fact. Errors are logged and do not affect the call."""
        kind: type[Any] = type(fact)
        is_end = kind is Closed
        try:
            if isinstance(fact, Transition):
                # Write both before and after the user's answer, because the user may take a long time.
                is_end = self._is_live and fact.event in _CONVERSATION_EVENTS
                if fact.event is Event.ASK:
                    fact = self._read_questions(fact)
            elif kind in self._CAPTURES:
                fact = self._CAPTURES[kind](self, fact)
            self._facts.append((self._monotonic(), kind, fact))
            if is_end and not self.is_queued:
                self._queue(self)
        except Exception:  # noqa: BLE001 - in the log
            _log_unrecorded(kind)

    def write(self, write: Callable[[str], None]) -> None:
        """Give `write` the lines for the facts so far."""
        if self._first_line is not None:
            (subject, arguments), self._first_line = self._first_line, None
            try:
                write(self._began_line(subject, arguments))
            except Exception:  # noqa: BLE001 - in the log
                _log_unrecorded(Beginning)
        # Copy the list, because another thread may add a fact at the same time.
        facts = self._facts[:]
        del self._facts[: len(facts)]
        for at, kind, fact in facts:
            try:
                take = self._HANDLERS.get(kind)
                line = take(self, fact, (at - self._began[1]) * 1000) if take is not None else None
                if line is not None:
                    write(line)
            except Exception:  # noqa: BLE001 - in the log
                _log_unrecorded(kind)

    # Capture values when their facts arrive.

    def _read_questions(self, transition: Transition) -> Transition:
        detail = transition.detail
        if "questions" in detail:
            # Texts and roundtrip's own forms do not change. But an author may later change a request that is sent to a
            # model.
            if all(isinstance(pending.question, FormQuestion | UrlQuestion) for pending in detail["questions"]):
                return transition
            questions = [render_question(self._redaction, waiting) for waiting in detail["questions"]]
        else:
            requests = detail.get("requests", {}).items()
            questions = [writer.render_new_request(self._redaction, key, request) for key, request in requests]
        return transition._replace(detail={**detail, "questions": questions})

    def _read_intent(self, fact: facts.IntentFound) -> facts.IntentFound:
        self._has_intent = True
        return fact

    def _read_value(self, fact: StepEnded | Fixed) -> StepEnded | Fixed:
        return fact._replace(value=self._redaction.take("steps", fact.value))

    def _read_answer(self, fact: AnswerRead) -> AnswerRead:
        if fact.data is None:
            return fact
        return fact._replace(data=self._redaction.take("answers", fact.data))

    def _read_approval(self, fact: ApprovalRead) -> tuple[ApprovalRead, Taken]:
        person = {"who": fact.decision.who, "reason": fact.decision.reason}
        return fact, self._redaction.take("answers", person)

    def _read_journal(self, fact: Wrote) -> tuple[Journal, str]:
        journal = fact.journal
        return journal, writer.computed_values(self._redaction, self._beginning.journal, journal)

    def _read_result(self, fact: Returned) -> tuple[Taken, bool]:
        value = fact.value
        is_error = isinstance(value, CallToolResult) and bool(value.is_error)
        return self._redaction.take("results", value), is_error

    def _read_error(self, fact: Raised) -> tuple[str, Taken]:
        # Keep only the text, because the error's traceback refers to the whole leg and to this watch.
        return type(fact.error).__name__, self._redaction.take("errors", str(fact.error))

    _CAPTURES: ClassVar[Mapping[type, Callable[[Any, Any], object]]] = {
        facts.IntentFound: _read_intent,
        StepEnded: _read_value,
        AnswerRead: _read_answer,
        ApprovalRead: _read_approval,
        Fixed: _read_value,
        Wrote: _read_journal,
        Returned: _read_result,
        Raised: _read_error,
    }

    # Turn the collected facts into lines. `ms` is the time since the attempt began.

    def _on_transition(self, transition: Transition, ms: float) -> str | None:
        _, _, _, event, self._state, self._round, detail = transition
        self._append("moves", f"{_MOVES[event, self._state]}{ms:.3f}]")
        if event is Event.ASK:
            self._asked = transition, ms
            # Questions end the leg if the author wrote them in wire form or they are not sent to the client. Their line
            # is then written with the token.
            if self._is_live and not {"authored", "channel", "external"} & detail.keys():
                return self._asked_line(None, ms)
        elif event is Event.RESUME and self._asked is not None:
            (_, asked_ms), self._asked = self._asked, None
            keys = array([self._name(key) for key in detail.get("keys", ())])
            return self._line("answered", f'"keys":{keys},"waited":{max(0.0, ms - asked_ms):.3f}', ms)
        return None

    def _on_intent_found(self, fact: facts.IntentFound, ms: float) -> None:
        self._scalars["intent"] = dumps({name: value for name, value in fact._asdict().items() if value})

    def _on_run_began(self, fact: facts.NodeBegan | facts.StepBegan, ms: float) -> None:
        self._run_starts[fact.key] = ms

    def _on_node_ended(self, fact: facts.NodeEnded, ms: float) -> None:
        self._append("nodes", f'{{"key":{quoted(fact.key)},"how":"{fact.how}",{self._span(fact.key, ms)}}}')

    def _on_body_began(self, fact: facts.BodyBegan, ms: float) -> None:
        self._count("bodies", 1)
        if fact.uncovered:
            self._scalars["uncovered"] = "true"

    def _on_step_ended(self, fact: StepEnded, ms: float) -> None:
        value = "" if fact.how == "failed" else f',"value":{self._redaction.show(fact.value)}'
        self._append("steps", f'{{"key":{quoted(fact.key)},"how":"{fact.how}",{self._span(fact.key, ms)}{value}}}')

    def _on_answer_read(self, fact: AnswerRead, ms: float) -> None:
        action = "null" if fact.action is None else f'"{fact.action}"'
        data = "" if fact.data is None else f',"data":{self._redaction.show(fact.data)}'
        self._append_once("answers", f'{{"key":{self._name(fact.key)},"action":{action},"how":"{fact.how}"{data}}}')

    def _on_approval_read(self, read: tuple[ApprovalRead, Taken], ms: float) -> None:
        (key, by, decision), taken = read
        members = f'"key":{self._name(key)},"by":{quoted(by)},"outcome":"{decision.outcome}"'
        at = decision.when.timestamp()
        self._append_once("decisions", f'{{{members},"at":{at:.3f},"data":{self._redaction.show(taken)}}}')

    def _on_fixed(self, fact: Fixed, ms: float) -> None:
        # In the retry era, the line about the next token records this value.
        if self._is_live:
            key = quoted(writer.computed_name(fact.key, self._redaction.name))
            self._append("fixed", f'{{"key":{key},"value":{self._redaction.show(fact.value)}}}')

    def _on_answer_reused(self, fact: facts.AnswerReused, ms: float) -> None:
        self._append_once("reused", self._name(fact.key))

    def _on_answers_ignored(self, fact: facts.AnswersIgnored, ms: float) -> None:
        self._count("ignored", fact.number)

    def _on_wrote(self, read: tuple[Journal, str], ms: float) -> None:
        self._journal = read

    def _on_returned(self, read: tuple[Taken, bool], ms: float) -> None:
        taken, is_error = read
        self._end_members["result"] = self._redaction.show(taken)
        if is_error:
            self._end_members["is_error"] = "true"

    def _on_raised(self, read: tuple[str, Taken], ms: float) -> None:
        self._end_members["error"] = f'{{"type":{quoted(read[0])},"text":{self._redaction.show(read[1])}}}'

    def _on_declined(self, fact: DeclinedFact, ms: float) -> None:
        self._end_members["decline"] = quoted(self._redaction.names_in(fact.reason))

    def _on_handed(self, fact: HandedFact, ms: float) -> None:
        self._is_handed = True

    def _on_closed(self, fact: Closed, ms: float) -> str:
        if self._is_handed:
            return self._line("handed", '"to":"task"', ms)
        if self._asked is not None and self._state is State.AWAITING_INPUT:
            return self._asked_line(fact.token_bytes, ms)
        members = {"state": f'"{_END_STATES[self._state]}"', **self._end_members}
        return self._line("ended", ",".join([f'"{name}":{value}' for name, value in members.items()]), ms)

    _HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any, float], str | None]]] = {
        Transition: _on_transition,
        facts.IntentFound: _on_intent_found,
        facts.NodeBegan: _on_run_began,
        facts.NodeEnded: _on_node_ended,
        facts.BodyBegan: _on_body_began,
        facts.StepBegan: _on_run_began,
        StepEnded: _on_step_ended,
        AnswerRead: _on_answer_read,
        facts.AnswerReused: _on_answer_reused,
        facts.AnswersIgnored: _on_answers_ignored,
        ApprovalRead: _on_approval_read,
        Fixed: _on_fixed,
        Wrote: _on_wrote,
        Returned: _on_returned,
        Raised: _on_raised,
        DeclinedFact: _on_declined,
        HandedFact: _on_handed,
        Closed: _on_closed,
    }

    def _began_line(self, subject: str, arguments: Taken) -> str:
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
        return f'{{"v":1,"event":"began","at":{self._began[0]:.6f},{self._head}{self._round},{line}}}'

    def _asked_line(self, token_bytes: int | None, ms: float) -> str:
        if self._asked is None:
            raise RuntimeError("a line of type 'asked' must have questions")
        asked, _ = self._asked
        detail = asked.detail
        by = "author" if "authored" in detail else "body" if asked.source is State.EXECUTING else "resolvers"
        redaction = self._redaction
        questions = [
            question if isinstance(question, str) else render_question(redaction, question)
            for question in detail["questions"]
        ]
        line = f'"by":"{by}","questions":{array(questions)}'
        if "waits" in detail:
            line += f',"waits":{array([writer.render_wait(redaction, wait) for wait in detail["waits"]])}'
        if "external" in detail:
            approvals = [writer.render_approval(redaction, approval) for approval in detail["external"]]
            line += f',"approvals":{array(approvals)}'
        if "channel" in detail:
            line += f',"rung":"{detail["channel"]}"'
        if self._journal is not None:
            journal, fixed = self._journal
            difference = writer.difference(self._beginning.journal, journal, redaction.name)
            token = f'"bytes":{token_bytes or 0}{difference}{fixed}'
            # If no question was sent to the client, the store keeps the call for the rest of its lifetime.
            is_stored = "channel" in detail or ("external" in detail and not detail["questions"])
            until = journal.end if is_stored else journal.deadline
            line += f',"until":{until:.3f},"token":{{{token}}}'
        return self._line("asked", line, ms)

    def _line(self, event: str, line: str, ms: float) -> str:
        line_members = [f'"{part}":{array(items)},' for part, items in self._lists.items()]
        line_members += [f'"{name}":{value},' for name, value in self._scalars.items() if value]
        self._lists, self._scalars = {}, {}
        return (
            f'{{"v":1,"event":"{event}","at":{self._began[0] + ms / 1000:.6f},{self._head}{self._round},'
            f'"ms":{ms:.3f},{"".join(line_members)}{line}}}'
        )

    def _name(self, key: str) -> str:
        return quoted(self._redaction.name(key))

    def _append(self, part: str, item: str) -> None:
        self._lists.setdefault(part, []).append(item)

    def _count(self, name: str, number: int) -> None:
        self._scalars[name] = int(self._scalars.get(name, 0)) + number

    def _append_once(self, part: str, item: str) -> None:
        if item not in self._lists.get(part, ()):
            self._append(part, item)

    def _span(self, key: str, ms: float) -> str:
        start = self._run_starts.pop(key, ms)
        return f'"start":{start:.3f},"ms":{ms - start:.3f}'


def _log_unrecorded(kind: type) -> None:
    logger.exception("the transcript cannot record a fact of type %s; the call is not affected", kind.__name__)
