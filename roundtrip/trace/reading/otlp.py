"""Write a recorded call as an OTLP document (`resourceSpans` in OTLP's JSON encoding), with a span for each serving.

Identifiers derive from the call's id, so the same transcript always gives the same document. It never has values
(arguments, answers, results, texts), not even those that the transcript reveals.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from roundtrip.machine.table import State
from roundtrip.trace.reading.calls import HappenedLine, Serving, TracedCall
from roundtrip.trace.writing import names
from roundtrip.trace.writing.lines import AnsweredLine, AskedLine, EndedLine, RejectedLine

__all__ = ["otlp", "otlp_document"]

_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_SERVER: Final = 2
"""SPAN_KIND_SERVER. Enums are numbers in OTLP's JSON."""
_INTERNAL: Final = 1
_ERROR: Final = 2
_MAX_INT: Final = 2**63 - 1
_MAX_SECONDS: Final = 9e9
"""Times since the epoch up to this have nanoseconds that fit into 64 bits."""

Attribute = str | int | float | bool | Sequence[str] | None


def otlp(call: TracedCall) -> str:
    """Return the document of a call as text that is safe on a terminal."""
    return json.dumps(otlp_document(call), indent=2).replace("\x7f", "\\u007f")


def otlp_document(call: TracedCall) -> dict[str, Any]:
    """Return the document of a call, for a collector's `/v1/traces`.

    Each instance is a resource. The span of a leg has a link to the span of the leg before, and a rejected token has a
    span of its own.
    """
    spans: dict[str, list[dict[str, Any]]] = {}
    for serving in call.servings:
        spans.setdefault(serving.instance, []).append(_leg_span(call, serving))
    for place, rejection in enumerate(call.rejections):
        spans.setdefault(rejection.instance, []).append(_rejected_span(call, rejection, place))
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes({"service.name": names.SCOPE, names.INSTANCE: instance})},
                "scopeSpans": [{"scope": {"name": names.SCOPE}, "spans": of_instance}],
            }
            for instance, of_instance in spans.items()
        ]
    }


def _leg_span(call: TracedCall, serving: Serving) -> dict[str, Any]:
    began, happened, last = serving.began, serving.happened, serving.lines[-1]
    start = serving.started_at
    error = _error_of(serving.ended)
    attributes: dict[str, Attribute] = {
        names.CALL: call.id,
        names.LEG: serving.leg,
        names.ROUND: last.round,
        names.STATE: _state(serving),
        names.TOOL: call.tool,
    }
    if began is not None:
        attributes |= {
            names.ERA: began.era,
            names.METHOD: began.method,
            names.PROTOCOL: began.protocol,
            names.BUILD: began.build,
            names.WITHIN: began.within,
            names.TAKES_OVER: began.takes_over or None,
            names.TOKEN_IN: began.token_bytes,
        }
    if isinstance(last, AskedLine):
        attributes[names.PENDING] = [question.key for question in last.questions]
        attributes[names.TOKEN_OUT] = last.token.bytes if last.token is not None else None
    attributes |= {names.BODIES: serving.bodies, names.ERROR_TYPE: error}
    return {
        "traceId": _trace_id(call),
        "spanId": _span_id(call, serving),
        "name": f"{names.LEG_SPAN} {_clean(call.tool)}",
        "kind": _SERVER,
        "startTimeUnixNano": _nanoseconds(start),
        "endTimeUnixNano": _nanoseconds(max([start, *(_time(serving, line) for line in happened)])),
        "attributes": _attributes(attributes),
        "events": _arrival(call, serving) + [event for line in happened for event in _events(serving, line)],
        "links": _links(call, serving.leg, start),
        "status": {"code": _ERROR} if error is not None else {},
    }


def _rejected_span(call: TracedCall, rejection: RejectedLine, place: int) -> dict[str, Any]:
    attributes: dict[str, Attribute] = {
        names.CALL: call.id,
        names.LEG: rejection.leg,
        names.ROUND: rejection.round,
        names.STATE: State.REJECTED.value,
        names.TOOL: rejection.tool,
        names.REASON: rejection.reason.value,
        names.METHOD: rejection.method,
        names.PROTOCOL: rejection.protocol,
        names.TOKEN_IN: rejection.token_bytes,
        names.ERROR_TYPE: rejection.reason.value,
    }
    return {
        "traceId": _trace_id(call),
        "spanId": _digest(_SPAN_ID_BYTES, call.id, "rejected", rejection.instance, str(rejection.serving), str(place)),
        "name": f"{names.REJECTED_SPAN} {_clean(rejection.tool or call.tool)}",
        "kind": _INTERNAL,
        "startTimeUnixNano": _nanoseconds(rejection.at),
        "endTimeUnixNano": _nanoseconds(rejection.at),
        "attributes": _attributes(attributes),
        "events": [],
        "links": _links(call, rejection.leg, rejection.at),
        "status": {"code": _ERROR},
    }


def _links(call: TracedCall, leg: int | None, at: float) -> list[dict[str, Any]]:
    """Return a link to the serving that issued the token of a leg: by time, the last serving of the leg before."""
    earlier = [serving for serving in call.servings if leg is not None and serving.leg < leg]
    if not earlier:
        return []
    of_leg = [serving for serving in earlier if serving.leg == earlier[-1].leg]
    before = next((serving for serving in reversed(of_leg) if serving.started_at <= at), of_leg[0])
    attributes = _attributes({names.LEG: before.leg})
    return [{"traceId": _trace_id(call), "spanId": _span_id(call, before), "attributes": attributes}]


def _arrival(call: TracedCall, serving: Serving) -> list[dict[str, Any]]:
    """Return the event of a leg that began with the answers to an earlier leg's questions."""
    out = [round_ for round_ in call.rounds if round_.answered_at == serving.started_at]
    waited = out[-1].waited_ms if out and out[-1].serving is not serving else None
    return [_event(names.ANSWERED, serving.started_at, {names.WAITED: waited / 1000})] if waited is not None else []


def _events(serving: Serving, line: HappenedLine) -> list[dict[str, Any]]:
    """Return the events of a line: its transitions, then its questions or answers."""
    start = serving.started_at
    events = [
        _event(names.MOVED, start + ms / 1000, {names.EVENT: event.value, names.STATE: state.value})
        for event, state, ms in line.moves
    ]
    at = _time(serving, line)
    if isinstance(line, AskedLine):
        for question in line.questions:
            asked: dict[str, Attribute] = {
                names.KEY: question.key,
                names.REASON: question.reason.value,
                names.ROUND: line.round,
                names.ATTEMPT: question.attempt if question.attempt > 1 else None,
            }
            events.append(_event(names.ASKED, at, asked))
    elif isinstance(line, AnsweredLine) and line.keys:
        events.append(_event(names.ANSWERED, at, {names.KEYS: line.keys, names.WAITED: line.waited / 1000}))
    return events


def _event(name: str, at: float, attributes: Mapping[str, Attribute]) -> dict[str, Any]:
    return {"name": name, "timeUnixNano": _nanoseconds(at), "attributes": _attributes(attributes)}


def _time(serving: Serving, line: HappenedLine) -> float:
    return serving.started_at + line.ms / 1000


def _state(serving: Serving) -> str | None:
    """Return the state in which the serving left its call; None if the transcript does not have it."""
    if serving.ended is not None:
        return serving.ended.state
    return serving.moves[-1][1].value if serving.moves else None


def _error_of(ended: EndedLine | None) -> str | None:
    """Return the `error.type` of a span; a decline of the user is not an error."""
    if ended is None or ended.state == State.DECLINED.value:
        return None
    if ended.state == State.COMPLETED.value:
        return names.TOOL_ERROR if ended.is_error else None
    return ended.error.type if ended.error is not None else ended.state


def _trace_id(call: TracedCall) -> str:
    return _digest(_TRACE_ID_BYTES, call.id)


def _span_id(call: TracedCall, serving: Serving) -> str:
    return _digest(_SPAN_ID_BYTES, call.id, serving.instance, str(serving.number), str(serving.leg))


def _digest(size: int, *parts: str) -> str:
    """Return an identifier in hex of some texts; their lengths make every split distinct."""
    text = "".join(f"{len(part)}:{part}" for part in ("roundtrip/otlp/1", *parts))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:size].hex()


def _nanoseconds(at: float) -> str:
    """Return a time as OTLP's JSON has it: nanoseconds as text. A float of this century has microseconds only."""
    if at <= 0:
        return "0"
    return str(round(at * 1_000_000) * 1000 if at < _MAX_SECONDS else _MAX_INT)


def _attributes(values: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: str | float | Sequence[str]) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": _clean(value)}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(max(-_MAX_INT, min(value, _MAX_INT)))}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"arrayValue": {"values": [{"stringValue": _clean(text)} for text in value]}}


def _clean(text: str) -> str:
    """Return a text without lone surrogates, which a transcript may have and UTF-8 cannot encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
