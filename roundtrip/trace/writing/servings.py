"""Keep the facts of one serving, and pass its lines on when its response has been sent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from mcp_types import CallToolResult

from roundtrip.machine.call import Transition
from roundtrip.machine.facts import AnswerRead, ApprovalRead, Fixed, Reason, StepEnded
from roundtrip.machine.table import Event
from roundtrip.questions.wire import FormQuestion, UrlQuestion
from roundtrip.system import System
from roundtrip.trace.writing.redaction import Redaction
from roundtrip.trace.writing.writer import (
    LineWriter,
    ReadApproval,
    ReadError,
    ReadJournal,
    ReadResult,
    computed_values,
    named_question,
    shown_question,
    shown_request,
)
from roundtrip.tracing import Beginning, Closed, Raised, Returned, Wrote

logger = logging.getLogger("roundtrip")

_TALK: Final = frozenset((Event.ASK, Event.RESUME))
"""Events of a conversation over an open connection."""


class ServingOutput(NamedTuple):
    """Destination of the servings of a recorder."""

    redaction: Redaction
    queue: Callable[[RecordedServing], None]
    """Has `RecordedServing.write` called soon."""
    system: System


class RecordedServing:
    """Watch of one serving. It keeps facts until the response has been sent, and then writes their lines.

    A value that may change until then is read at once: as text if it is revealed, otherwise as bytes for its digest.

    Args:
        beginning: The first fact.
        head: The members that name the serving on each line: the instance, and the number of the serving.
        subject: The members of the first line that are the same for all servings of the function.
        output: Where lines go.
    """

    __slots__ = (
        "_arguments",
        "_began_at",
        "_beginning",
        "_facts",
        "_head",
        "_is_live",
        "_lines",
        "_monotonic",
        "_queue",
        "_redaction",
        "_started",
        "_subject",
        "is_queued",
    )

    def __init__(self, beginning: Beginning, *, head: str, subject: str, output: ServingOutput) -> None:
        self._beginning = beginning
        self._head = head
        self._subject = subject
        self._is_live = beginning.era == "live"
        self._redaction, self._queue, system = output
        self._arguments = self._redaction.take("arguments", beginning.arguments)
        self._monotonic = system.monotonic
        self._began_at = system.time()
        self._started = self._monotonic()
        self._facts: list[tuple[float, object]] = []
        self._lines: LineWriter | None = None
        self.is_queued = False
        """True while its facts wait to be written."""
        self._queue(self)

    @property
    def is_direct(self) -> bool:
        """Return True if no client sent the request."""
        return self._beginning.era == "direct"

    def keep(self, fact: object) -> None:
        """Keep one fact. Errors go to the log, and never to the call."""
        kind: type = type(fact)
        is_end = kind is Closed
        try:
            if isinstance(fact, Transition):
                # A user may think for long.
                is_end = self._is_live and fact.event in _TALK
                if fact.event is Event.ASK:
                    fact = self._read_questions(fact)
            elif kind in self._READS:
                fact = self._READS[kind](self, fact)
            self._facts.append((self._monotonic(), fact))
            if is_end and not self.is_queued:
                self._queue(self)
        except Exception:  # noqa: BLE001 - in the log
            _log_lack(kind)

    def write(self, write: Callable[[str], None]) -> None:
        """Pass the lines of the facts so far to `write`."""
        lines = self._lines
        if lines is None:
            lines = self._lines = LineWriter(
                self._beginning, head=self._head, redaction=self._redaction, began_at=self._began_at
            )
            try:
                write(lines.began(self._subject, self._arguments))
            except Exception:  # noqa: BLE001 - in the log
                _log_lack(Beginning)
        # A thread may keep another fact meanwhile.
        facts = self._facts[:]
        del self._facts[: len(facts)]
        takes, started = LineWriter.TAKES, self._started
        for at, fact in facts:
            try:
                take = takes.get(type(fact))
                line = take(lines, fact, (at - started) * 1000) if take is not None else None
                if line is not None:
                    write(line)
            except Exception:  # noqa: BLE001 - in the log
                _log_lack(type(fact))

    # Values, read when their facts arrive.

    def _read_questions(self, transition: Transition) -> Transition:
        detail = transition.detail
        if "questions" in detail:
            # Texts, and the forms that roundtrip made, do not change. The author may change what a model is asked.
            if all(isinstance(one.question, FormQuestion | UrlQuestion) for one in detail["questions"]):
                return transition
            questions = [shown_question(self._redaction, waiting) for waiting in detail["questions"]]
        else:
            questions = [
                f"{{{named_question(self._redaction, key, Reason.NEW)},{shown_request(self._redaction, request)}}}"
                for key, request in detail.get("requests", {}).items()
            ]
        return transition._replace(detail={**detail, "questions": questions})

    def _read_value(self, fact: StepEnded | Fixed) -> StepEnded | Fixed:
        return fact._replace(value=self._redaction.take("steps", fact.value))

    def _read_answer(self, fact: AnswerRead) -> AnswerRead:
        if fact.data is None:
            return fact
        return AnswerRead(fact.key, fact.action, fact.how, self._redaction.take("answers", fact.data))

    def _read_approval(self, fact: ApprovalRead) -> ReadApproval:
        person = {"who": fact.decision.who, "reason": fact.decision.reason}
        return ReadApproval(fact.key, fact.by, fact.decision, self._redaction.take("answers", person))

    def _read_journal(self, fact: Wrote) -> ReadJournal:
        fixed = computed_values(self._redaction, self._beginning.journal, fact.journal) if fact.journal.computed else ""
        return ReadJournal(fact.journal, fixed)

    def _read_result(self, fact: Returned) -> ReadResult:
        value = fact.value
        is_error = isinstance(value, CallToolResult) and bool(value.is_error)
        return ReadResult(self._redaction.take("results", value), is_error)

    def _read_error(self, fact: Raised) -> ReadError:
        # The text only: the error's traceback refers to the whole leg, and to this watch.
        return ReadError(type(fact.error).__name__, self._redaction.take("errors", str(fact.error)))

    _READS: ClassVar[Mapping[type, Callable[[Any, Any], object]]] = {
        StepEnded: _read_value,
        AnswerRead: _read_answer,
        ApprovalRead: _read_approval,
        Fixed: _read_value,
        Wrote: _read_journal,
        Returned: _read_result,
        Raised: _read_error,
    }


def _log_lack(kind: type) -> None:
    logger.exception("a transcript lacks a fact of type %s; the call is not affected", kind.__name__)
