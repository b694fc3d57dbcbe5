"""Calls as data for programs: a summary for lists, and a story with everything that was recorded."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from pydantic import BaseModel

from roundtrip.machine.journal import OUTCOMES
from roundtrip.trace.reading.calls import Round, Serving, TracedCall
from roundtrip.trace.writing.lines import OperatorAction, ReadAnswer
from roundtrip.trace.writing.names import TOOL_ERROR

_ENDING_FAILURES: Final[Mapping[OperatorAction, str]] = {"cancel": "cancelled", "expire": "expired"}


def outcomes_of(call: TracedCall) -> frozenset[str]:
    """Return the outcomes that occur in a call: `accepted`, `declined`, `cancelled`, `invalid` and `lost`."""
    answers = [answer for round_ in call.rounds for answer in round_.answers]
    return frozenset(outcome_of(answer) for answer in answers)


def outcome_of(answer: ReadAnswer) -> str:
    """Return an answer's outcome."""
    if answer.how != "taken" or answer.action is None:
        return "invalid" if answer.how == "taken" else answer.how
    return OUTCOMES[answer.action]


def until(call: TracedCall) -> float | None:
    """Return the deadline for pending answers, in seconds since the epoch; None if no question is pending."""
    # The transcript does not record the deadline for an approval.
    return call.rounds[-1].asked.until if call.pending else None


def failure_of(call: TracedCall) -> str | None:
    """Return the type of the error that ended a call, or `tool_error` for a result with `isError`.

    If a stored call ended outside a leg, return `cancelled`, `lost` or `expired`.
    """
    if call.stopped is not None:
        return call.stopped.how
    ended = call.ended
    if ended is None:
        return _ENDING_FAILURES[call.ended_by.action] if call.ended_by is not None else None
    return ended.error_type or (TOOL_ERROR if ended.is_error else None)


def summary(call: TracedCall) -> dict[str, Any]:
    """Summarize a call for a list."""
    return {
        "call": call.id,
        "tool": call.tool,
        "state": call.state.value,
        "recalled": not call.bodies and any(serving.is_recall for serving in call.servings),
        "rounds": call.round_count,
        "legs": call.legs,
        "replays": call.replay_count,
        "takeovers": len(call.takeovers),
        "instances": call.instances,
        **{name: getattr(call.began, name, None) for name in ("method", "era", "protocol", "build", "principal")},
        "started_at": call.started_at,
        "last_at": call.last_at,
        "server_ms": round(call.server_ms, 3),
        "waited_ms": round(call.waited_ms, 3),
        "bodies": call.bodies,
        "reasons": sorted(call.reasons),
        "outcomes": sorted(outcomes_of(call)),
        "rejections": call.rejection_count,
        "pending": [question.key for question in call.pending],
        "awaited": [f"{approval.key} by {approval.by}" for approval in call.awaited],
        "until": until(call),
        "failure": failure_of(call),
    }


def story(call: TracedCall) -> dict[str, Any]:
    """Return everything recorded about a call: rounds, attempts at legs, rejections and operator actions."""
    return {
        **summary(call),
        **_members(call.began, "version", "within", "arguments"),
        "asked": [_round(round_) for round_ in call.rounds],
        "marks": call.marks(),
        "servings": [_serving(serving) for serving in call.servings],
        "rejected": _dumped(call.rejections),
        "actions": _dumped(call.actions),
        "stops": _dumped(call.stops),
        "path": [[event, state] for _, event, state in call.arrows],
        "ended": _members(call.ended, "at", "instance", "leg", "state", "is_error", "result", "decline", "error")
        if call.ended is not None
        else None,
        "omitted": asdict(call.omitted) if call.omitted.requests else None,
    }


def _round(round_: Round) -> dict[str, Any]:
    shown = ("round", "leg", "instance", "serving", "at", "by", "questions", "reused", "until", "token")
    return {
        **_members(round_.asked, *shown),
        "answered_at": round_.answered_at,
        "waited_ms": round_.waited_ms,
        "answers": _dumped(round_.answers),
    }


def _serving(serving: Serving) -> dict[str, Any]:
    happened = serving.happened
    return {
        "leg": serving.leg,
        "instance": serving.instance,
        "serving": serving.number,
        "started_at": serving.started_at,
        "server_ms": round(serving.server_ms, 3),
        "waited_ms": round(serving.waited_ms, 3),
        "over": serving.is_over,
        **_members(serving.began, "build", "token_bytes", "takes_over"),
        "intent": serving.intent.model_dump(mode="json") if serving.intent is not None else None,
        "nodes": _dumped(node for line in happened for node in line.nodes),
        "steps": _dumped(step for line in happened for step in line.steps),
        "bodies": serving.bodies,
        "ignored": sum(line.ignored for line in happened),
        "ends": (serving.ended.state if serving.ended is not None else happened[-1].event) if happened else None,
    }


def _members(line: BaseModel | None, *names: str) -> dict[str, Any]:
    """Return some members of a line as JSON values. If there is no line, all members are None."""
    found = line.model_dump(mode="json", include=set(names)) if line is not None else {}
    return {name: found.get(name) for name in names}


def _dumped(parts: Iterable[BaseModel]) -> list[dict[str, Any]]:
    return [part.model_dump(mode="json") for part in parts]
