"""Return a call as data for programs: a summary for lists, and the story with everything recorded."""

from collections.abc import Sequence
from typing import Any

from roundtrip.machine.journal import OUTCOMES
from roundtrip.trace.reading.calls import Round, Serving, TracedCall
from roundtrip.trace.writing.lines import AskedLine, EndedLine, Line, ReadAnswer, Recorded

__all__ = ["outcomes_of", "story", "summary", "until"]


def outcomes_of(call: TracedCall) -> frozenset[str]:
    """Return the outcomes of a call's questions: `accepted`, `declined`, `cancelled`, `invalid` and `lost`."""
    answers = [answer for round_ in call.rounds for answer in round_.answers]
    return frozenset(outcome_of(answer) for answer in answers)


def outcome_of(answer: ReadAnswer) -> str:
    """Return the outcome of one answer."""
    if answer.how != "taken" or answer.action is None:
        return "invalid" if answer.how == "taken" else answer.how
    return OUTCOMES[answer.action]


def until(call: TracedCall) -> float | None:
    """Return the deadline for the answers that a call waits for, in seconds since the epoch."""
    return call.rounds[-1].asked.until if call.pending else None


def summary(call: TracedCall) -> dict[str, Any]:
    """Return the members of a call that a list shows."""
    began = call.began
    return {
        "call": call.id,
        "tool": call.tool,
        "state": call.state.value,
        "rounds": call.round_count,
        "legs": call.legs,
        "replays": len(call.replays),
        "instances": call.instances,
        "method": began.method if began is not None else None,
        "era": began.era if began is not None else None,
        "protocol": began.protocol if began is not None else None,
        "build": began.build if began is not None else None,
        "started_at": call.started_at,
        "last_at": call.last_at,
        "server_ms": round(call.server_ms, 3),
        "waited_ms": round(call.waited_ms, 3),
        "bodies": call.bodies,
        "reasons": sorted(call.reasons),
        "outcomes": sorted(outcomes_of(call)),
        "rejections": len(call.rejections),
        "pending": [question.key for question in call.pending],
        "until": until(call),
    }


def story(call: TracedCall) -> dict[str, Any]:
    """Return everything recorded of a call: its rounds, its servings and its rejections."""
    began, ended = call.began, call.ended
    return {
        **summary(call),
        "principal": began.principal if began is not None else None,
        "version": began.version if began is not None else None,
        "within": began.within if began is not None else None,
        "replaces": began.replaces if began is not None else None,
        "arguments": _plain(began.arguments) if began is not None else None,
        "asked": [_round(round_) for round_ in call.rounds],
        "marks": {key: [mark.value if mark is not None else None for mark in row] for key, row in call.marks().items()},
        "servings": [_serving(serving) for serving in call.servings],
        "rejected": [line.model_dump(mode="json") for line in call.rejections],
        "path": [[event.value, state.value] for event, state in call.path],
        "ended": _ended(ended) if ended is not None else None,
    }


def _round(round_: Round) -> dict[str, Any]:
    asked = round_.asked
    return {
        "round": round_.number,
        "leg": asked.leg,
        "instance": asked.instance,
        "serving": asked.serving,
        "at": asked.at,
        "by": asked.by,
        "questions": [question.model_dump(mode="json") for question in asked.questions],
        "reused": list(asked.reused),
        "until": asked.until,
        "token": asked.token.model_dump(mode="json") if asked.token is not None else None,
        "answered_at": round_.answered_at,
        "waited_ms": round_.waited_ms,
        "answers": [answer.model_dump(mode="json") for answer in round_.answers],
    }


def _serving(serving: Serving) -> dict[str, Any]:
    began = serving.began
    lines: Sequence[Line] = serving.happened
    happened = serving.happened
    return {
        "leg": serving.leg,
        "instance": serving.instance,
        "serving": serving.number,
        "started_at": serving.started_at,
        "server_ms": round(serving.server_ms, 3),
        "waited_ms": round(serving.waited_ms, 3),
        "over": serving.is_over,
        "build": began.build if began is not None else None,
        "token_bytes": began.token_bytes if began is not None else None,
        "nodes": [node.model_dump(mode="json") for line in happened for node in line.nodes],
        "steps": [step.model_dump(mode="json") for line in happened for step in line.steps],
        "bodies": sum(line.bodies for line in happened),
        "ignored": sum(line.ignored for line in happened),
        "ends": _end_of(lines[-1]) if lines else None,
    }


def _end_of(line: Line) -> str:
    if isinstance(line, EndedLine):
        return line.state
    return "asked" if isinstance(line, AskedLine) else line.event


def _ended(line: EndedLine) -> dict[str, Any]:
    return {
        "at": line.at,
        "instance": line.instance,
        "leg": line.leg,
        "state": line.state,
        "is_error": line.is_error,
        "result": _plain(line.result),
        "decline": line.decline,
        "error": line.error.model_dump(mode="json") if line.error is not None else None,
    }


def _plain(recorded: Recorded | None) -> Any:
    return recorded.model_dump(mode="json") if recorded is not None else None
