"""Data for a call page. All texts are plain, and the page never inserts them as HTML."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from roundtrip.machine.table import Event, State
from roundtrip.text import build_text
from roundtrip.trace.explaining.explanations import (
    explain_question,
    explain_rejection,
    explain_replay,
    explain_takeover,
)
from roundtrip.trace.explaining.failures import explain_end
from roundtrip.trace.explaining.sequence import exchange_of
from roundtrip.trace.explaining.stories import until
from roundtrip.trace.explaining.wording import (
    approval_text,
    clock_text,
    count_text,
    duration_text,
    intent_text,
    listed_text,
    omitted_text,
    size_text,
    times_text,
    token_text,
)
from roundtrip.trace.page.forms import json_text, page_fields_of, value_text
from roundtrip.trace.reading.calls import SYMBOLS, HappenedLine, Round, Serving, TracedCall
from roundtrip.trace.writing.lines import (
    ActedLine,
    AnsweredLine,
    AskedApproval,
    AskedLine,
    BeganLine,
    Digested,
    EndedLine,
    Line,
    ReadAnswer,
    Recorded,
    RejectedLine,
    Revealed,
    ShownQuestion,
    StoppedLine,
)

Data = dict[str, Any]
"""Object that can be converted to JSON."""

STATE_SYMBOLS: Final[Mapping[str, str]] = {
    State.COMPLETED: "✓",
    State.FAILED: "✗",
    State.DECLINED: "⊘",
    State.REJECTED: "⊗",
    State.AWAITING_INPUT: "…",
}
UNSERVED: Final = "the transcripts contain no request for this call: its lines were pruned, or a file was not named"
_NO_MARK: Final = "."
_MAX_LISTED_NAMES: Final = 12
"""Maximum number of names in one line. The timeline shows all names."""


@dataclass(slots=True)
class _TimelineColumn:
    """A timeline column: one round, and the requests that led to it."""

    place: int
    lines: list[tuple[Serving | None, Line]] = field(default_factory=list[tuple[Serving | None, Line]])
    moves: list[tuple[State, Event, State]] = field(default_factory=list[tuple[State, Event, State]])
    before: Round | None = None
    round: Round | None = None
    is_again: bool = False
    """True if this round repeats an earlier attempt's round."""

    @property
    def servings(self) -> list[Serving]:
        return list(dict.fromkeys(serving for serving, _ in self.lines if serving is not None))

    @property
    def began(self) -> list[BeganLine]:
        return [line for _, line in self.lines if isinstance(line, BeganLine)]

    @property
    def happened(self) -> list[HappenedLine]:
        return [line for _, line in self.lines if isinstance(line, AskedLine | AnsweredLine | EndedLine)]

    @property
    def rejections(self) -> list[RejectedLine]:
        return [line for _, line in self.lines if isinstance(line, RejectedLine)]


def data_of(call: TracedCall) -> Data:
    """Return the page content for a call."""
    steps = _steps(call)
    exchange = exchange_of(call)
    replays = {serving: explain_replay(call, serving, first) for serving, first in call.replays}
    replays |= {serving: explain_takeover(serving, before) for serving, before in call.takeovers}
    return {
        "call": call.id,
        "tool": call.tool,
        "state": call.state,
        "symbol": STATE_SYMBOLS.get(call.state, "▸"),
        "rounds": call.round_count,
        "reasons": sorted(call.reasons),
        "instances": call.instances,
        "started": clock_text(call.started_at),
        "server": duration_text(call.server_ms),
        "waiting": duration_text(call.waited_ms),
        "failure": _failure(call, steps),
        "facts": _facts_of_call(call),
        "share": _share(call),
        "legend": [[mark.value, symbol] for mark, symbol in SYMBOLS.items()],
        "rows": _rows(call, len(steps)),
        "steps": [_step_data(call, step, replays, is_last=step is steps[-1]) for step in steps],
        "participants": exchange.participants,
        "actions": [action_data(line) for line in call.actions],
        "messages": [
            [message.kind, message.source, message.target, message.text, message.step] for message in exchange.messages
        ],
    }


def data_of_unserved(call: TracedCall, tool: str, state: str) -> Data:
    """Return the page content for a call that is in the store but not in any transcript."""
    known = {"tool": tool, "state": state, "symbol": STATE_SYMBOLS.get(state, "▸"), "facts": [["Recorded", UNSERVED]]}
    return {**data_of(call), **known}


def _failure(call: TracedCall, steps: Sequence[_TimelineColumn]) -> Data | None:
    """Explain a failed call, and say at which step it failed."""
    end = explain_end(call)
    if end is None:
        return None
    ended, why = end
    with_end = (step.place for step in steps if any(line is ended for line in step.happened))
    return {"step": next(with_end, steps[-1].place), "why": why}


def action_data(line: ActedLine) -> Data:
    """Return an operator action as page data."""
    return {"at": clock_text(line.at), **{name: getattr(line, name) for name in ("by", "action", "outcome", "why")}}


def _facts_of_call(call: TracedCall) -> list[list[str]]:
    facts = [
        ["Server time", duration_text(call.server_ms)],
        ["Waiting", duration_text(call.waited_ms) if call.waited_ms else "-"],
        ["Rounds", str(call.round_count)],
        ["Legs", f"{call.legs} on {count_text(len(call.instances), 'instance')}"],
        ["Body began", _bodies(call)],
        ["Started", clock_text(call.started_at)],
    ]
    if call.omitted.requests:
        facts.append(["Shown", omitted_text(call)])
    if call.takeovers:
        facts.append(["Taken over", f"{times_text(len(call.takeovers))}, from a silent worker"])
    if call.pending or call.awaited:
        deadline = until(call)
        keys = ", ".join([*(question.key for question in call.pending), *map(approval_text, call.awaited)])
        facts.append(["Waits for", keys if deadline is None else f"{keys} (until {clock_text(deadline)})"])
    began = call.began
    if began is not None:
        facts.append(["Era", f"{began.era}, {began.protocol}" if began.protocol is not None else began.era])
        facts.append(["Build", build_text(began.build)])
        if began.principal is not None:
            facts.append(["Principal", began.principal])
        if began.within is not None:
            facts.append(["Within the call", began.within])
    return facts


def _bodies(call: TracedCall) -> str:
    if call.bodies:
        silent = f", and perhaps in {count_text(call.silent_servings, 'silent worker')}" if call.silent_servings else ""
        return f"{times_text(call.bodies)}{silent}"
    return "unknown: a leg has no recorded end" if call.may_have_run else "never"


def _share(call: TracedCall) -> float:
    """Return the server's share of the call's time."""
    total = call.server_ms + call.waited_ms
    return round(call.server_ms / total, 4) if total and math.isfinite(total) else 1.0


def _rows(call: TracedCall, columns: int) -> list[Data]:
    """Return one row for each question. The row has one character per step: its mark's index in the legend."""
    places = {mark: str(place) for place, mark in enumerate(SYMBOLS)}
    return [
        {"key": key, "marks": "".join(_NO_MARK if mark is None else places[mark] for mark in marks)[:columns]}
        for key, marks in call.marks().items()
    ]


# Steps.


def _steps(call: TracedCall) -> list[_TimelineColumn]:
    step = _TimelineColumn(0)
    steps = [step]
    rounds = iter(call.rounds)
    numbers: set[int] = set()
    for request in call.occurrences:
        if not isinstance(request, Serving):
            step.lines.append((None, request))
            continue
        arrows = iter(request.arrows)
        for line in request.lines:
            step.lines.append((request, line))
            if isinstance(line, BeganLine):
                continue
            step.moves += islice(arrows, len(line.moves))
            if isinstance(line, AskedLine):
                step.round = next(rounds)
                step.is_again = line.round in numbers
                numbers.add(line.round)
                step = _TimelineColumn(len(steps), before=step.round)
                steps.append(step)
    return steps if step.lines or len(steps) == 1 else steps[:-1]


def _step_data(call: TracedCall, step: _TimelineColumn, replays: Mapping[Serving, str], *, is_last: bool) -> Data:
    round_ = step.round
    return {
        "name": _name(call, step),
        "state": step.moves[-1][2] if step.moves and not is_last else call.state,
        "column": str(round_.number) if round_ is not None else ("■" if call.is_over else "now"),
        "moves": [[source, event] for source, event, _ in step.moves],
        "facts": _facts(step),
        "arguments": next((_value_data(line.arguments) for line in step.began if line.leg == 1), None),
        "questions": [_question(call, round_, question) for question in round_.asked.questions] if round_ else [],
        "approvals": [_approval(call, approval) for approval in round_.asked.approvals] if round_ else [],
        "lost": _unmatched_answers(round_),
        "rejections": [{"reason": line.reason, "why": explain_rejection(line, call)} for line in step.rejections],
        "replays": [replays[one] for one in step.servings if one in replays],
        "token": _token(round_, step.before),
        "runs": list(_runs(step)),
        "end": next((_end(line) for line in step.happened if isinstance(line, EndedLine)), None),
        "lines": [_raw_line(line) for _, line in step.lines],
    }


def _name(call: TracedCall, step: _TimelineColumn) -> str:
    if not call.servings and not call.rejections:
        return "No recorded request"
    if step.round is None:
        return f"End: {call.state}" if call.is_over else f"Now: {call.state}"
    return f"Round {step.round.number}{', asked again by another serving' if step.is_again else ''}"


def _facts(step: _TimelineColumn) -> list[list[str]]:
    facts = [["Served by", f"{serving.instance}, leg {serving.leg}"] for serving in step.servings]
    intents = [text for serving in step.servings if (text := intent_text(serving.intent)) is not None]
    facts += [["Intent", text] for text in intents]
    if step.round is not None:
        asked = step.round.asked
        facts.append(["Asked by", f"the {asked.by}" if asked.by != "resolvers" else "resolvers"])
        waited = step.round.waited_ms
        until = f", until {clock_text(asked.until)}" if asked.until is not None else ""
        facts.append(["Answered", f"after {duration_text(waited)}" if waited is not None else f"not yet{until}"])
    facts += [
        ["Build", f"{build_text(line.previous_build)} before, now {build_text(line.build)}"]
        for line in step.began
        if line.previous_build is not None
    ]
    reused = list(dict.fromkeys(key for line in step.happened for key in line.reused))
    if reused:
        facts.append(["Reused answers", listed_text(reused, _MAX_LISTED_NAMES)])
    return facts


def _runs(step: _TimelineColumn) -> Iterator[list[str]]:
    for line in step.happened:
        for node in line.nodes:
            yield ["resolver", node.key, node.how, duration_text(node.ms)]
        for run in line.steps:
            yield ["step", run.key, run.how, duration_text(run.ms)]
        if line.bodies:
            yield ["body", "", "began" if line.bodies == 1 else f"began {line.bodies} times", ""]
        if line.uncovered:
            yield ["body", "", "not covered by exactly_once: the call had no token", ""]


def _token(round_: Round | None, before: Round | None) -> Data | None:
    written = round_.asked.token if round_ is not None else None
    if written is None:
        return None
    earlier = before.asked.token if before is not None else None
    grown = "the first of this call"
    if earlier is not None:
        more = written.bytes - earlier.bytes
        grown = f"{'+' if more >= 0 else '−'}{size_text(abs(more))} since the round before"  # noqa: RUF001 - a minus
    return {
        "text": f"{size_text(written.bytes)}, {grown}" if written.bytes else token_text(0),
        "added": written.added,
        "dropped": written.dropped,
        "changed": written.changed,
    }


def _end(line: EndedLine) -> Data:
    return {
        "state": line.state,
        "decline": line.decline or "",
        "result": _value_data(line.result),
        "is_error": line.is_error,
        "error": line.error_type or "",
        "text": _value_data(line.error.text) if line.error is not None else None,
    }


# Questions.


def _question(call: TracedCall, round_: Round, question: ShownQuestion) -> Data:
    answers = [answer for answer in round_.answers if answer.key == question.key]
    answer = answers[-1] if answers else None
    data = answer.data.value if answer is not None and isinstance(answer.data, Revealed) else None
    form = question.form
    return {
        "key": question.key,
        "kind": question.kind,
        "reason": question.reason,
        "why": explain_question(call, round_, question),
        "attempt": question.attempt,
        "message": _value_data(question.message),
        "complaint": _value_data(question.complaint),
        "url": _value_data(question.url),
        "form": _value_data(form) if isinstance(form, Digested) else None,
        "fields": page_fields_of(form.value, data) if isinstance(form, Revealed) else None,
        "answer": _answer(answer) if answer is not None else None,
    }


def _approval(call: TracedCall, approval: AskedApproval) -> Data:
    read = call.decisions.get(approval.key)
    decision = {"outcome": read.outcome, "at": clock_text(read.at), "data": _value_data(read.data)} if read else None
    return {"key": approval.key, "by": approval.by, "message": _value_data(approval.message), "decision": decision}


def _answer(answer: ReadAnswer) -> Data:
    remarks = {"taken": "", "invalid": "it did not fit the form", "lost": "it answered a different wording"}
    return {
        "key": answer.key,
        "action": answer.action or "malformed",
        "remark": remarks[answer.how],
        "data": _value_data(answer.data),
    }


def _unmatched_answers(round_: Round | None) -> list[Data]:
    """Return a round's answers to questions that are not in the round."""
    if round_ is None:
        return []
    keys = {question.key for question in round_.asked.questions}
    return [_answer(answer) for answer in round_.answers if answer.key not in keys]


def _value_data(recorded: Recorded | None) -> Data | None:
    """Return a revealed value as text. For any other value, return its size and digest."""
    if recorded is None:
        return None
    if isinstance(recorded, Digested):
        return {"hidden": f"not recorded: {size_text(recorded.bytes)}, digest {recorded.digest}"}
    return {"text": value_text(recorded.value, indent=2)}


def _raw_line(line: Line) -> Data:
    """Return a line as text, because JavaScript cannot represent every number that JSON can."""
    try:
        data: Data = {"v": line.v, "event": line.event, **line.model_dump(exclude_unset=True)}
    except RecursionError:
        data = {"v": line.v, "event": line.event}
    number = None if isinstance(line, ActedLine | StoppedLine) else line.leg
    leg = f", leg {number}" if number is not None else ""
    return {
        "title": f"{line.event} on {line.instance}{leg}, {clock_text(line.at, precise=True)}",
        "text": json_text(data),
    }
