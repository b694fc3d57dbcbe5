"""Facts that only the server knows about a leg. A server without tracers does not import this module."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from roundtrip.engine.leg import Declined, Finished, HandedOver, LegEnd
from roundtrip.legs.functions import AskingFunction
from roundtrip.machine.facts import Watch
from roundtrip.machine.journal import Journal
from roundtrip.revisions import is_retry_era
from roundtrip.trace.writing.tracers import Tracers
from roundtrip.tracing import Beginning, DeclinedFact, HandedFact, LinkedWatch, Returned

if TYPE_CHECKING:
    from roundtrip.legs.extensions import OpenLeg

_CALL: Final = "tools/call"


def begin(tracers: Tracers, leg: "OpenLeg") -> Watch:
    """Report that a leg begins, and return the watcher for its later facts."""
    call, request, record, subject, arguments = leg.call, leg.request, leg.record, leg.function.subject, leg.arguments
    protocol = request.protocol_version if request is not None else None
    era = "direct" if protocol is None else "retry" if is_retry_era(protocol) else "live"
    token_bytes = outer = None
    if record is not None:
        token_bytes = record.token_in
        params: Mapping[str, Any] = request.params or {} if request is not None else {}
        if isinstance(sent := params.get("arguments"), Mapping):
            arguments = cast("Mapping[str, Any]", sent)
        called = params.get("name") if record.stored is None else record.stored.tool
        if subject.method == _CALL and isinstance(called, str) and called != subject.tool:
            # FastMCP's mounts and transforms may rename a tool.
            subject = subject._replace(tool=called)
    elif leg.incoming.record is not None:
        # This leg runs inside another function's leg.
        outer = leg.incoming.record.call_id
    takes_over = False
    if record is not None and record.stored is not None:
        era, takes_over = "task", record.stored.takes_over
    call.watch = tracers.begin(
        Beginning(
            call.id,
            call.leg,
            call.round,
            subject,
            era,
            protocol,
            leg.principal(),
            leg.journal,
            token_bytes,
            arguments,
            outer,
            takes_over,
        )
    )
    for fact in leg.notes.facts:
        call.watch(fact)
    return call.watch


def linked(journal: Journal, watch: Watch) -> Journal:
    """Return the journal, linked to this leg's span if the watcher records a span."""
    return replace(journal, traceparent=watch.traceparent) if isinstance(watch, LinkedWatch) else journal


def report_end(end: LegEnd, function: AskingFunction, watch: Watch) -> None:
    """Report the end of a leg that raised no error."""
    if isinstance(end, Finished):
        watch(Returned(function.as_sent(end.value)))
    elif isinstance(end, Declined):
        watch(DeclinedFact(end.reason))
    elif isinstance(end, HandedOver):
        watch(HandedFact())
