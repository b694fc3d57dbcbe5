"""`Telemetry`, the tracer that reports calls to OpenTelemetry as spans and metrics.

It needs only OpenTelemetry's API, and does nothing unless the process configures a provider. It reports names, reasons
and counts. It never reports a value, such as an argument, an answer, a result or a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mcp_types import CallToolResult
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, StatusCode

from roundtrip import tracing
from roundtrip.machine.call import Transition
from roundtrip.machine.facts import BodyBegan, Reason, Watch
from roundtrip.machine.journal import UNNAMED, Journal
from roundtrip.machine.table import CALL_MACHINE, Event, State
from roundtrip.system import SYSTEM, System
from roundtrip.trace.writing.names import TOOL_ERROR
from roundtrip.tracing import Beginning, Closed, DeclinedFact, Raised, Returned, Wrote

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter, MeterProvider

Value = str | int | float | Sequence[str]

_SCOPE: Final = "roundtrip"
"""The instrumentation scope."""
_NAMES: Final = {
    "method": "mcp.method.name",
    "protocol": "mcp.protocol.version",
    "error": "error.type",
    "received": "roundtrip.token.received_bytes",
    "sent": "roundtrip.token.sent_bytes",
}
"""Maps keywords of `_attributes` to full attribute names. Other attributes are named `roundtrip.` plus the keyword."""

# Bucket bounds for the histograms.
_ROUNDS: Final = (0, 1, 2, 3, 4, 5, 7, 10, 20)
_SECONDS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600)
_BYTES: Final = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


class Telemetry:
    """Tracer that reports each leg as a span, linked to the previous leg's span, and counts calls.

    Each span is a child of the SDK's request span, and is current while the function runs. The token carries the link
    to the next leg. Metrics have only the attributes tool, state, reason and error type.

    Args:
        tracer_provider: The span provider; by default, the process's global provider.
        meter_provider: The metrics provider; by default, the process's global provider.
        system: The clock.

    Example:
        ```python
        server = Server("bookshop", trace=Telemetry())
        ```
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        system: System = SYSTEM,
    ) -> None:
        # Imported lazily, because the MCP SDK does not use OpenTelemetry metrics.
        from opentelemetry.metrics import get_meter

        self._providers = (tracer_provider, meter_provider)
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._meters = _Meters(get_meter(_SCOPE, meter_provider=meter_provider))
        self._system = system

    def flush(self) -> None:
        """Make the providers send the data that they have collected, if they support it."""
        from opentelemetry.metrics import get_meter_provider

        given_tracers, given_meters = self._providers
        for provider in (given_tracers or trace.get_tracer_provider(), given_meters or get_meter_provider()):
            # OpenTelemetry's SDK providers have `force_flush`, but the API does not define it.
            flush = getattr(provider, "force_flush", None)
            if flush is not None:
                flush()

    def begin(self, beginning: Beginning) -> Watch:
        """Return a watch that reports one request as a span."""
        method, tool, _, build, _ = beginning.subject
        call_attributes = _attributes(call=beginning.call_id, leg=beginning.leg, tool=tool, method=method, build=build)
        request_attributes = _attributes(era=beginning.era, protocol=beginning.protocol, received=beginning.token_bytes)
        other_attributes = _attributes(within=beginning.within, takes_over=beginning.takes_over or None)
        attributes, links = call_attributes | request_attributes | other_attributes, _links(beginning.journal)
        span = self._tracer.start_span(f"roundtrip.leg {beginning.tool}", attributes=attributes, links=links)
        watch = _LegWatch(beginning, self._meters, span if span.is_recording() else None, self._system)
        return tracing.LinkedWatch(watch, _traceparent(span)) if span.is_recording() else watch

    def reject(self, rejection: tracing.TokenRejection) -> None:
        """Report a rejected token as a span, and count it."""
        reason, method, tool, protocol, _, journal, size = rejection
        counted = _attributes(tool=tool, reason=reason.value)
        request_attributes = _attributes(method=method, protocol=protocol, received=size)
        ended = _attributes(state=State.REJECTED.value, error=reason.value)
        if journal is not None:
            ended |= _attributes(call=journal.call_id, leg=journal.leg + 1, round=journal.round)
        name = "roundtrip.rejected" if tool is None else f"roundtrip.rejected {tool}"
        span = self._tracer.start_span(name, attributes=counted | request_attributes | ended, links=_links(journal))
        span.set_status(StatusCode.ERROR)
        span.end()
        self._meters.rejections.add(1, counted)

    def stop(self, stopped: tracing.StoppedCall) -> None:
        """Count a stored call that ended.

        Two kinds of calls are counted elsewhere. A call that a worker was running is counted when the worker reports
        the leg's end. A call that joined another call is counted only as that other call.
        """
        if not stopped.ends_leg and stopped.how != "joined":
            ended = _attributes(tool=stopped.tool, state=State.FAILED.value, error=stopped.how)
            self._meters.calls.add(1, ended)


class _Meters:
    """Counters and histograms."""

    def __init__(self, meter: Meter) -> None:
        counter = meter.create_counter
        self.calls = counter("roundtrip.calls", "{call}", "Ended calls, by final state.")
        asked = "Questions sent, by reason."
        self.questions = counter("roundtrip.questions", "{question}", asked)
        self.rejections = counter("roundtrip.rejections", "{token}", "Rejected tokens, by reason.")

        def histogram(name: str, unit: str, description: str, bounds: Sequence[float]) -> Histogram:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds)

        self.rounds = histogram("roundtrip.call.rounds", "{round}", "Question rounds per ended call.", _ROUNDS)
        waited = "Time from a round's questions to their answers."
        self.waiting = histogram("roundtrip.wait.duration", "s", waited, _SECONDS)
        self.token_bytes = histogram("roundtrip.token.size", "By", "Sizes of sent tokens.", _BYTES)


class _LegWatch:
    """A watch on one leg. `span` is None if the provider does not record the leg."""

    def __init__(self, beginning: Beginning, meters: _Meters, span: Span | None, system: System) -> None:
        self._beginning = beginning
        self._meters = meters
        self._span = span
        self._system = system
        # The span is current until the function returns, so that the function's own spans and logs belong to its leg.
        self._attached: Token[Context] | None = (
            otel_context.attach(trace.set_span_in_context(span)) if span is not None else None
        )
        self._round = beginning.round
        self._state = State.RECEIVED if beginning.journal is None else State.AWAITING_INPUT
        self._bodies = 0
        self._pending: Sequence[str] = ()
        self._sent_at: float | None = None
        self._error: str | None = None

    def __call__(self, fact: object) -> None:
        """Process one fact."""
        take = self._HANDLERS.get(type(fact))
        if take is not None:
            take(self, fact)

    def _on_transition(self, transition: Transition) -> None:
        self._state = transition.target
        self._round = transition.round
        if transition.event is Event.ASK:
            self._on_asked(transition)
        elif transition.event is Event.RESUME:
            self._on_resumed(transition)

    def _on_asked(self, transition: Transition) -> None:
        self._pending = [_public_name(key) for key in transition.detail.get("keys", ())]
        self._sent_at = self._system.monotonic()
        if "authored" in transition.detail:
            self._detach()
        questions = transition.detail.get("questions")
        if questions is None:
            asked = [(key, Reason.NEW, 0) for key in self._pending]
        else:
            asked = [(_public_name(question.key), question.reason, question.asked.attempts) for question in questions]
        for key, reason, invalid in asked:
            self._meters.questions.add(1, _attributes(tool=self._beginning.tool, reason=reason.value))
            if self._span is not None:
                attempt = invalid + 1 if invalid else None
                shown = _attributes(key=key, reason=reason.value, round=transition.round, attempt=attempt)
                self._span.add_event("roundtrip.asked", shown)

    def _on_resumed(self, transition: Transition) -> None:
        self._pending = ()
        keys = transition.detail.get("keys")
        if self._sent_at is not None and not keys:
            # The body stopped waiting for the answer.
            return
        waited = self._waited()
        if waited is not None:
            self._meters.waiting.record(waited, _attributes(tool=self._beginning.tool))
        if self._span is not None:
            answered = [_public_name(key) for key in keys] if keys is not None else None
            self._span.add_event("roundtrip.answered", _attributes(keys=answered, waited=waited))

    def _waited(self) -> float | None:
        if self._sent_at is not None:
            return self._system.monotonic() - self._sent_at
        journal = self._beginning.journal
        # The result could be negative, because the clock of the instance that wrote the journal may be ahead.
        return max(0.0, self._system.time() - journal.written) if journal is not None else None

    def _on_body_began(self, fact: BodyBegan) -> None:
        self._bodies += 1

    def _on_wrote(self, fact: Wrote | DeclinedFact) -> None:
        self._detach()

    def _on_returned(self, fact: Returned) -> None:
        self._detach()
        if isinstance(fact.value, CallToolResult) and fact.value.is_error:
            self._error = TOOL_ERROR

    def _on_raised(self, fact: Raised) -> None:
        self._detach()
        self._error = type(fact.error).__name__
        if self._state not in CALL_MACHINE.final:
            self._state = State.FAILED

    def _on_closed(self, fact: Closed) -> None:
        self._detach()
        tool = self._beginning.tool
        if fact.token_bytes is not None:
            self._meters.token_bytes.record(fact.token_bytes, _attributes(tool=tool))
        if self._state in CALL_MACHINE.final:
            self._meters.rounds.record(self._round, _attributes(tool=tool, state=self._state.value))
            self._meters.calls.add(1, _attributes(tool=tool, state=self._state.value, error=self._error))
        if self._span is None:
            return
        served = _attributes(round=self._round, state=self._state.value, bodies=self._bodies, sent=fact.token_bytes)
        pending = self._pending if self._state is State.AWAITING_INPUT else None
        self._span.set_attributes(served | _attributes(pending=pending, error=self._error))
        if self._error is not None:
            # Do not set a status description, because an error's text may quote a value.
            self._span.set_status(StatusCode.ERROR)
        self._span.end()

    def _detach(self) -> None:
        if self._attached is not None:
            otel_context.detach(self._attached)
            self._attached = None

    _HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        Transition: _on_transition,
        BodyBegan: _on_body_began,
        Wrote: _on_wrote,
        DeclinedFact: _on_wrote,
        Returned: _on_returned,
        Raised: _on_raised,
        Closed: _on_closed,
    }


def _public_name(key: str) -> str:
    """Return a question's name. A generated name is cut, because it is a digest of the question's text and could be
    guessed.
    """
    return UNNAMED.rstrip("-") if key.startswith(UNNAMED) else key


def _attributes(**attributes: Value | None) -> dict[str, Value]:
    """Return attributes under their full names. Omit attributes that are None."""
    return {_NAMES.get(name, f"roundtrip.{name}"): value for name, value in attributes.items() if value is not None}


def _traceparent(span: Span) -> str:
    span_context = span.get_span_context()
    ids = f"{trace.format_trace_id(span_context.trace_id)}-{trace.format_span_id(span_context.span_id)}"
    return f"00-{ids}-{span_context.trace_flags:02x}"


def _links(journal: Journal | None) -> list[trace.Link]:
    """Return a link to the previous leg's span, if the token identifies that span."""
    if journal is None or journal.traceparent is None:
        return []
    trace_id, span_id, flags = (int(part, 16) for part in journal.traceparent.split("-")[1:])
    context = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
    return [trace.Link(context, {"roundtrip.leg": journal.leg})]
