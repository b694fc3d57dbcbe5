"""`Telemetry`: tells OpenTelemetry what happens to calls, as spans and metrics.

Of OpenTelemetry only its API is needed here; where no provider is configured, it does nothing with what it is told.
Names, reasons and counts are told, and never what anybody said: no argument, answer, result or text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mcp_types import CallToolResult
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    StatusCode,
    TraceFlags,
    TracerProvider,
    format_span_id,
    format_trace_id,
    get_tracer,
    set_span_in_context,
)

from roundtrip.machine.call import Transition
from roundtrip.machine.facts import BodyBegan, Reason, Watch
from roundtrip.machine.journal import UNNAMED, Journal
from roundtrip.machine.table import CALL_MACHINE, Event, State
from roundtrip.trace.writing import names
from roundtrip.tracing import (
    Beginning,
    Closed,
    DeclinedFact,
    LinkedWatch,
    Raised,
    Returned,
    TokenRejection,
    Wrote,
)

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider

__all__ = ["Telemetry"]

Value = str | int | float | Sequence[str]

_ROUNDS: Final = (0, 1, 2, 3, 4, 5, 7, 10, 20)
_SECONDS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600)
_BYTES: Final = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


class Telemetry:
    """Tells OpenTelemetry of each leg as a span, which has a link to that of the leg before; and counts.

    Spans are children of the request's, which the SDK makes, and are current while the function runs. The link travels
    in the token. Metrics are told apart by tool, state and reason alone.

    Args:
        tracer_provider: Where spans go; by default to the provider that is set for the process.
        meter_provider: The same for metrics.

    Example:
        ```python
        server = Server("bookshop", trace=Telemetry())
        ```
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        # The SDK needs no metrics, and so they would be imported for every server, telling or not.
        from opentelemetry.metrics import get_meter

        self._tracer = get_tracer(names.SCOPE, tracer_provider=tracer_provider)
        self._meters = _Meters(get_meter(names.SCOPE, meter_provider=meter_provider))

    def begin(self, beginning: Beginning) -> Watch:
        """Watch one serving."""
        span = self._tracer.start_span(
            f"{names.LEG_SPAN} {beginning.tool}",
            attributes=_known(
                {
                    names.CALL: beginning.call_id,
                    names.LEG: beginning.leg,
                    names.TOOL: beginning.tool,
                    names.ERA: beginning.era,
                    names.METHOD: beginning.subject.method,
                    names.PROTOCOL: beginning.protocol,
                    names.BUILD: beginning.subject.build,
                    names.WITHIN: beginning.within,
                    names.TOKEN_IN: beginning.token_bytes,
                }
            ),
            links=_links(beginning.journal),
            record_exception=False,
            set_status_on_exception=False,
        )
        if not span.is_recording():
            return _LegWatch(beginning, self._meters, None)
        return LinkedWatch(_LegWatch(beginning, self._meters, span), _traceparent(span))

    def reject(self, rejection: TokenRejection) -> None:
        """Tell of a token that was rejected."""
        journal = rejection.journal
        told = {names.TOOL: rejection.tool, names.REASON: rejection.reason.value}
        span = self._tracer.start_span(
            f"{names.REJECTED_SPAN} {rejection.tool}" if rejection.tool is not None else names.REJECTED_SPAN,
            attributes=_known(
                {
                    **told,
                    names.CALL: journal.call_id if journal is not None else None,
                    names.LEG: journal.leg + 1 if journal is not None else None,
                    names.ROUND: journal.round if journal is not None else None,
                    names.STATE: State.REJECTED.value,
                    names.METHOD: rejection.method,
                    names.PROTOCOL: rejection.protocol,
                    names.TOKEN_IN: rejection.token_bytes,
                    names.ERROR_TYPE: rejection.reason.value,
                }
            ),
            links=_links(journal),
        )
        span.set_status(StatusCode.ERROR)
        span.end()
        self._meters.rejections.add(1, _known(told))


class _Meters:
    """What is counted and measured."""

    def __init__(self, meter: Meter) -> None:
        self.calls = meter.create_counter(
            "roundtrip.calls", unit="{call}", description="Calls that ended, by the state they ended in."
        )
        self.rounds = meter.create_histogram(
            "roundtrip.call.rounds",
            unit="{round}",
            description="Rounds of questions of calls that ended.",
            explicit_bucket_boundaries_advisory=_ROUNDS,
        )
        self.waiting = meter.create_histogram(
            "roundtrip.wait.duration",
            unit="s",
            description="How long a call waited for the answers of one round.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.rejections = meter.create_counter(
            "roundtrip.rejections", unit="{token}", description="Tokens that were rejected, by reason."
        )
        self.token_bytes = meter.create_histogram(
            "roundtrip.token.size",
            unit="By",
            description="Sizes of the tokens that went out.",
            explicit_bucket_boundaries_advisory=_BYTES,
        )


class _LegWatch:
    """Watches one serving; without a span where none is recorded."""

    __slots__ = (
        "_attached",
        "_beginning",
        "_bodies",
        "_error",
        "_meters",
        "_pending",
        "_round",
        "_sent_at",
        "_span",
        "_state",
    )

    def __init__(self, beginning: Beginning, meters: _Meters, span: Span | None) -> None:
        self._beginning = beginning
        self._meters = meters
        self._span = span
        # Until the function is done, whatever it does is part of its leg.
        self._attached: Token[Context] | None = (
            otel_context.attach(set_span_in_context(span)) if span is not None else None
        )
        self._round = beginning.round
        self._state = State.RECEIVED if beginning.journal is None else State.AWAITING_INPUT
        self._bodies = 0
        self._pending: Sequence[str] = ()
        self._sent_at: float | None = None
        self._error: str | None = None

    def __call__(self, fact: object) -> None:
        """Take one fact in."""
        take = self._TAKES.get(type(fact))
        if take is not None:
            take(self, fact)

    def _moved(self, step: Transition) -> None:
        self._state = step.target
        self._round = step.round
        if step.event is Event.ASK:
            self._ask(step)
        elif step.event is Event.RESUME:
            self._resume(step)

    def _ask(self, step: Transition) -> None:
        self._pending = [_told(key) for key in step.detail.get("keys", ())]
        self._sent_at = time.perf_counter()
        if "authored" in step.detail:
            self._detach()
        if self._span is None:
            return
        questions = step.detail.get("questions")
        if questions is None:
            for key in self._pending:
                self._span.add_event(
                    names.ASKED, {names.KEY: key, names.REASON: Reason.NEW.value, names.ROUND: step.round}
                )
            return
        for waiting in questions:
            attempt = {names.ATTEMPT: waiting.asked.attempts + 1} if waiting.asked.attempts else {}
            self._span.add_event(
                names.ASKED,
                {names.KEY: _told(waiting.key), names.REASON: waiting.reason.value, names.ROUND: step.round, **attempt},
            )

    def _resume(self, step: Transition) -> None:
        self._pending = ()
        if self._sent_at is not None and not step.detail.get("keys"):
            # The body has given the question up.
            return
        waited = self._waited()
        if waited is not None:
            self._meters.waiting.record(waited, {names.TOOL: self._beginning.tool})
        if self._span is not None:
            keys = step.detail.get("keys")
            told = [_told(key) for key in keys] if keys is not None else None
            self._span.add_event(names.ANSWERED, _known({names.KEYS: told, names.WAITED: waited}))

    def _waited(self) -> float | None:
        if self._sent_at is not None:
            return time.perf_counter() - self._sent_at
        journal = self._beginning.journal
        # Another instance wrote it, whose clock may be ahead.
        return max(0.0, time.time() - journal.written) if journal is not None else None

    def _body_began(self, fact: BodyBegan) -> None:
        del fact
        self._bodies += 1

    def _wrote(self, fact: Wrote | DeclinedFact) -> None:
        del fact
        self._detach()

    def _returned(self, fact: Returned) -> None:
        self._detach()
        if isinstance(fact.value, CallToolResult) and fact.value.is_error:
            self._error = names.TOOL_ERROR

    def _raised(self, fact: Raised) -> None:
        self._detach()
        self._error = type(fact.error).__name__
        if self._state not in CALL_MACHINE.final:
            self._state = State.FAILED

    def _closed(self, fact: Closed) -> None:
        self._detach()
        tool = self._beginning.tool
        if fact.token_bytes is not None:
            self._meters.token_bytes.record(fact.token_bytes, {names.TOOL: tool})
        if self._state in CALL_MACHINE.final:
            told = {names.TOOL: tool, names.STATE: self._state.value}
            self._meters.calls.add(1, told)
            self._meters.rounds.record(self._round, told)
        if self._span is not None:
            self._end(self._span, fact.token_bytes)

    def _end(self, span: Span, token_bytes: int | None) -> None:
        waits = self._state is State.AWAITING_INPUT
        span.set_attributes(
            _known(
                {
                    names.ROUND: self._round,
                    names.STATE: self._state.value,
                    names.BODIES: self._bodies,
                    names.PENDING: self._pending if waits else None,
                    names.TOKEN_OUT: token_bytes,
                    names.ERROR_TYPE: self._error,
                }
            )
        )
        if self._error is not None:
            # The text of an error may quote anything, so the status has none.
            span.set_status(StatusCode.ERROR)
        span.end()

    def _detach(self) -> None:
        if self._attached is not None:
            otel_context.detach(self._attached)
            self._attached = None

    _TAKES: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        Transition: _moved,
        BodyBegan: _body_began,
        Wrote: _wrote,
        DeclinedFact: _wrote,
        Returned: _returned,
        Raised: _raised,
        Closed: _closed,
    }


def _told(key: str) -> str:
    """The name of a question. One without a name is called by a digest of its text, which could be guessed at."""
    return UNNAMED.rstrip("-") if key.startswith(UNNAMED) else key


def _known(told: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in told.items() if value is not None}


def _traceparent(span: Span) -> str:
    context = span.get_span_context()
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"


def _links(journal: Journal | None) -> list[Link]:
    """The span of the leg before, where its token names one."""
    if journal is None or journal.traceparent is None:
        return []
    _, trace, span, flags = journal.traceparent.split("-")
    context = SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
    return [Link(context, {names.LEG: journal.leg})]
