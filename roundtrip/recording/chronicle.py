"""One serving on its way into a transcript: facts are gathered, and told in lines (see `lines.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, ClassVar, Final

from mcp_types import CallToolResult, CreateMessageRequest, ElicitRequest, ElicitRequestURLParams, ListRootsRequest

from roundtrip.asks.forms import Form
from roundtrip.asks.questions import FormQuestion, UrlQuestion
from roundtrip.machine.call import Step
from roundtrip.machine.facts import (
    AnswerRead,
    AnswerReused,
    AnswersIgnored,
    BodyBegan,
    NodeBegan,
    NodeEnded,
    StepBegan,
    StepEnded,
)
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import FINAL, Event, State
from roundtrip.recording.redaction import Redaction
from roundtrip.recording.tracing import Beginning, Closed, Raised, Refused, Returned, Wrote
from roundtrip.runtime.answers import Open
from roundtrip.runtime.reasons import Reason

__all__ = ["Chronicle", "Head"]

Write = Callable[[dict[str, Any]], None]
Head = Mapping[str, Any]
"""The instance, and the number of the serving."""

_ENDS: Final = frozenset(state.value for state in FINAL)


class Chronicle:
    """Watches one serving, and writes its lines."""

    __slots__ = (
        "_asked",
        "_asked_at",
        "_beginning",
        "_bodies",
        "_call",
        "_clock",
        "_ended",
        "_error",
        "_gathered",
        "_head",
        "_ignored",
        "_journal",
        "_redaction",
        "_refusal",
        "_result",
        "_running",
        "_started",
        "_state",
        "_write",
    )

    def __init__(
        self, beginning: Beginning, *, head: Head, redaction: Redaction, clock: Callable[[], float], write: Write
    ) -> None:
        self._beginning = beginning
        self._head = head
        self._redaction = redaction
        self._clock = clock
        self._write = write
        self._started = perf_counter()
        self._call = {"call": beginning.call_id, "leg": beginning.leg, "round": beginning.round}
        self._gathered: dict[str, list[Any]] = {}
        self._running: dict[str, float] = {}
        self._bodies = self._ignored = 0
        self._state = State.RECEIVED if beginning.journal is None else State.AWAITING_INPUT
        self._asked: Step | None = None
        self._asked_at = 0.0
        self._journal: Journal | None = None
        self._result: tuple[Any] | None = None
        self._error: BaseException | None = None
        self._refusal: str | None = None
        self._ended = False
        self._begin()

    def __call__(self, fact: object) -> None:
        """Take one fact in."""
        kind: type = type(fact)
        take = self._TAKES.get(kind)
        if take is not None:
            take(self, fact)

    # Facts.

    def _moved(self, step: Step) -> None:
        self._gather("moves", (step.event.value, step.target.value, self._ms()))
        self._state = step.target
        self._call["round"] = step.round
        if step.event is Event.ASK:
            self._asked = step
            if self._beginning.era == "live" and "authored" not in step.detail:
                self._tell_asked(None)
                self._asked_at = self._ms()
        elif step.event is Event.RESUME and step.leg == self._beginning.leg and self._asked is not None:
            self._asked = None
            self._tell("answered", keys=step.detail.get("keys", ()), waited=max(0.0, self._ms() - self._asked_at))

    def _node_began(self, fact: NodeBegan) -> None:
        self._running[fact.key] = self._ms()

    def _node_ended(self, fact: NodeEnded) -> None:
        self._gather("nodes", {"key": fact.key, "how": fact.how, **self._span(fact.key)})

    def _body_began(self, fact: BodyBegan) -> None:
        del fact
        self._bodies += 1

    def _step_began(self, fact: StepBegan) -> None:
        self._running[fact.key] = self._ms()

    def _step_ended(self, fact: StepEnded) -> None:
        run: dict[str, Any] = {"key": fact.key, "how": fact.how, **self._span(fact.key)}
        if fact.how != "failed":
            run["value"] = self._redaction.put("steps", fact.value)
        self._gather("steps", run)

    def _answer_read(self, fact: AnswerRead) -> None:
        answer: dict[str, Any] = {"key": fact.key, "action": fact.action, "how": fact.how}
        if fact.data is not None:
            answer["data"] = self._redaction.put("answers", fact.data)
        if answer not in self._gathered.get("answers", ()):
            self._gather("answers", answer)

    def _answer_reused(self, fact: AnswerReused) -> None:
        if fact.key not in self._gathered.get("reused", ()):
            self._gather("reused", fact.key)

    def _answers_ignored(self, fact: AnswersIgnored) -> None:
        self._ignored += fact.number

    def _wrote(self, fact: Wrote) -> None:
        self._journal = fact.journal

    def _returned(self, fact: Returned) -> None:
        self._result = (fact.value,)

    def _raised(self, fact: Raised) -> None:
        self._error = fact.error

    def _refused(self, fact: Refused) -> None:
        self._refusal = fact.reason

    def _closed(self, fact: Closed) -> None:
        if self._asked is not None and self._state is State.AWAITING_INPUT:
            self._tell_asked(fact.token_bytes)
        else:
            self._end()

    _TAKES: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        Step: _moved,
        NodeBegan: _node_began,
        NodeEnded: _node_ended,
        BodyBegan: _body_began,
        StepBegan: _step_began,
        StepEnded: _step_ended,
        AnswerRead: _answer_read,
        AnswerReused: _answer_reused,
        AnswersIgnored: _answers_ignored,
        Wrote: _wrote,
        Returned: _returned,
        Raised: _raised,
        Refused: _refused,
        Closed: _closed,
    }

    # Lines.

    def _begin(self) -> None:
        beginning = self._beginning
        journal = beginning.journal
        line: dict[str, Any] = {
            "method": beginning.method,
            "tool": beginning.tool,
            "era": beginning.era,
            "build": beginning.build,
            "plan": beginning.plan,
            "arguments": self._redaction.put("arguments", beginning.arguments),
        }
        if beginning.protocol is not None:
            line["protocol"] = beginning.protocol
        if beginning.version is not None:
            line["version"] = beginning.version
        if beginning.principal is not None:
            line["principal"] = self._redaction.fingerprint(beginning.principal)
        if journal is not None and journal.build != beginning.build:
            line["previous_build"] = journal.build
        if beginning.token_bytes is not None:
            line["token_bytes"] = beginning.token_bytes
        if beginning.within is not None:
            line["within"] = beginning.within
        self._write({"v": 1, "event": "began", "at": self._clock(), **self._head, **self._call, **line})

    def _tell_asked(self, token_bytes: int | None) -> None:
        asked = self._asked
        if asked is None:
            return
        detail = asked.detail
        by = "author" if "authored" in detail else "body" if asked.source is State.EXECUTING else "resolvers"
        line: dict[str, Any] = {"by": by}
        if "questions" in detail:
            line["questions"] = [self._question(waiting) for waiting in detail["questions"]]
        else:
            line["questions"] = [self._request(key, request) for key, request in detail.get("requests", {}).items()]
        if self._journal is not None:
            line["until"] = self._journal.deadline
            line["token"] = {"bytes": token_bytes or 0, **_difference(self._beginning.journal, self._journal)}
        self._tell("asked", **line)

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        state = self._state.value if self._state.value in _ENDS else "failed"
        line: dict[str, Any] = {"state": state}
        if self._result is not None:
            (value,) = self._result
            line["result"] = self._redaction.put("results", value)
            if isinstance(value, CallToolResult) and value.is_error:
                line["is_error"] = True
        if self._refusal is not None:
            line["refusal"] = self._refusal
        if self._error is not None:
            error = self._error
            line["error"] = {"type": type(error).__name__, "text": self._redaction.put("errors", str(error))}
        self._tell("ended", **line)

    def _tell(self, event: str, **line: Any) -> None:
        head = {"v": 1, "event": event, "at": self._clock(), **self._head, **self._call, "ms": self._ms()}
        head |= self._gathered
        if self._bodies:
            head["bodies"] = self._bodies
        if self._ignored:
            head["ignored"] = self._ignored
        self._gathered = {}
        self._bodies = self._ignored = 0
        self._write(head | line)

    # Parts of lines.

    def _question(self, waiting: Open) -> dict[str, Any]:
        question, put = waiting.question, self._redaction.put
        shown: dict[str, Any] = {"key": waiting.key, "reason": waiting.reason.value}
        if isinstance(question, FormQuestion):
            shown["kind"] = "form"
            shown["message"] = put("questions", question.text)
            form = question.form
            shown["form"] = (
                self._redaction.put_known("questions", form.digest, form.schema)
                if isinstance(form, Form)
                else put("questions", form.schema)
            )
        elif isinstance(question, UrlQuestion):
            shown["kind"] = "page"
            shown["message"] = put("questions", question.text)
            shown["url"] = put("questions", question.url)
        else:
            shown |= self._request(waiting.key, question.wire)
            shown["reason"] = waiting.reason.value
        if waiting.changed:
            shown["changed"] = waiting.changed
        if waiting.former is not None:
            shown["former"] = waiting.former
        if waiting.asked.attempts:
            shown["attempt"] = waiting.asked.attempts + 1
        if waiting.complaint is not None:
            shown["complaint"] = put("answers", waiting.complaint)
        return shown

    def _request(self, key: str, request: Any) -> dict[str, Any]:
        """A question as the wire has it."""
        shown: dict[str, Any] = {"key": key, "reason": Reason.NEW.value}
        put = self._redaction.put
        if isinstance(request, ElicitRequest):
            params = request.params
            shown["message"] = put("questions", params.message)
            if isinstance(params, ElicitRequestURLParams):
                return shown | {"kind": "page", "url": put("questions", params.url)}
            return shown | {"kind": "form", "form": put("questions", params.requested_schema)}
        if isinstance(request, CreateMessageRequest):
            return shown | {"kind": "sample", "message": put("questions", request.params)}
        if isinstance(request, ListRootsRequest):
            return shown | {"kind": "roots"}
        return shown | {"kind": "form"}

    def _gather(self, part: str, what: Any) -> None:
        gathered = self._gathered.get(part)
        if gathered is None:
            self._gathered[part] = [what]
        else:
            gathered.append(what)

    def _span(self, key: str) -> dict[str, float]:
        now = self._ms()
        start = self._running.pop(key, now)
        return {"start": start, "ms": round(now - start, 3)}

    def _ms(self) -> float:
        return round((perf_counter() - self._started) * 1000, 3)


def _difference(before: Journal | None, after: Journal) -> dict[str, list[str]]:
    """What is held that was not, no more, or otherwise than before."""
    old = _parts(before) if before is not None else {}
    new = _parts(after)
    difference = {
        "added": [part for part in new if part not in old],
        "dropped": [part for part in old if part not in new],
        "changed": [part for part, value in new.items() if part in old and old[part] != value],
    }
    return {how: parts for how, parts in difference.items() if parts}


def _parts(journal: Journal) -> dict[str, Any]:
    parts: dict[str, Any] = {f"answer:{key}": entry for key, entry in journal.entries.items()}
    parts |= {f"asked:{key}": asked for key, asked in journal.asked.items()}
    parts |= {f"computed:{key}": computed for key, computed in journal.computed.items()}
    if journal.authored is not None:
        parts["authored"] = journal.authored
    return parts
