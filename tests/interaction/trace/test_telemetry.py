"""`Telemetry`: spans and metrics of real calls on both eras, as OpenTelemetry's own SDK receives them."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from roundtrip import Context, Recorder, Telemetry
from roundtrip.machine.journal import Journal
from roundtrip.machine.journal_bytes import unpack_open
from roundtrip.testing import CANCEL, Clock, Era, Hop, LegByLeg, User
from roundtrip.tokens.binding import read_binding
from roundtrip.tokens.token import read_unverified
from tests.interaction.trace.transcribed import raw_lines
from tests.kit.bookshop import Copies, bookshop
from tests.kit.collected import (
    Collected,
    attributes_of,
    context_of,
    events_of,
    histogram,
    labels,
    linked_to,
    name_of,
    number,
)
from tests.kit.players import text_of

pytestmark = pytest.mark.anyio

ARGUMENTS: Final = {"title": "Neuromancer"}
ROUNDS: Final[list[dict[str, dict[str, Any]]]] = [
    {"confirm_backorder": {"confirm": True}},
    {"how_many": {"copies": 2}},
]


@pytest.fixture
def collected() -> Collected:
    return Collected()


async def test_spans_of_a_hopping_call_are_linked_by_leg() -> None:
    instances = [Collected() for _ in range(2)]
    servers = [bookshop(trace=instance.telemetry) for instance in instances]
    call = await User(servers, ROUNDS, network=Hop()).call("order", ARGUMENTS)
    assert call.text == "2 x Neuromancer, in 2-3 weeks"
    (first, third), (second,) = [instance.spans for instance in instances]
    assert [span.name for span in (first, second, third)] == ["roundtrip.leg order"] * 3
    assert linked_to(first) == []
    assert linked_to(second) == [name_of(first)]
    assert linked_to(third) == [name_of(second)]
    assert second.links[0].context.is_remote
    assert len({attributes_of(span)["roundtrip.call"] for span in (first, second, third)}) == 1


async def test_span_link_survives_an_instance_without_telemetry(collected: Collected) -> None:
    """The leg after it has none, as there is no span to link to, and the call goes on."""
    servers = [bookshop(trace=collected.telemetry), bookshop(), bookshop(trace=collected.telemetry)]
    call = await User(servers, ROUNDS, network=Hop()).call("order", ARGUMENTS)
    assert call.text == "2 x Neuromancer, in 2-3 weeks"
    first, third = collected.spans
    assert attributes_of(first)["roundtrip.leg"] == 1
    assert attributes_of(third)["roundtrip.leg"] == 3
    assert linked_to(third) == []


async def test_retried_leg_links_to_the_leg_of_its_token(collected: Collected) -> None:
    hopper = LegByLeg([bookshop(trace=collected.telemetry)])
    await hopper.leg("order", ARGUMENTS)
    token = hopper.token
    for _ in range(2):
        await hopper.leg("order", ARGUMENTS, answers=ROUNDS[0], state=token)
    first, second, again = collected.spans
    assert linked_to(second) == linked_to(again) == [name_of(first)]
    assert name_of(second) != name_of(again)


@pytest.mark.parametrize("provider", [None, TracerProvider(ALWAYS_OFF)], ids=["no provider", "nothing sampled"])
async def test_token_names_no_span_without_a_recorded_one(provider: TracerProvider | None) -> None:
    call = await User(bookshop(trace=Telemetry(tracer_provider=provider)), ROUNDS).call("order", ARGUMENTS)
    assert call.text == "2 x Neuromancer, in 2-3 weeks"
    assert journal_of(call.tokens[-1]).traceparent is None


def journal_of(token: str | None) -> Journal:
    assert token is not None
    payload = read_unverified(token).payload
    assert payload is not None
    return unpack_open(payload[read_binding(payload)[1] :])[0]


async def test_leg_span_nests_between_request_and_function_spans(
    era: Era, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected.become_the_provider_of_the_process(monkeypatch)
    tracer = collected.tracers.get_tracer("author")
    seen: list[tuple[trace.Span, trace.Span]] = []

    async def look(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        before = trace.get_current_span()
        try:
            return await call_next(ctx)
        finally:
            seen.append((before, trace.get_current_span()))

    server = bookshop(trace=collected.telemetry, middleware=[look])

    @server.tool()
    async def work(ctx: Context[Any, Any]) -> str:
        answer = await ctx.elicit("Which?", Copies)
        with tracer.start_as_current_span("work"):
            return answer.action

    @server.tool()
    def plain() -> str:
        with tracer.start_as_current_span("in a thread"):
            return "done"

    await User(server, {re.compile("Which"): {"copies": 1}}, era=era).call("work")
    spans = {context_of(span).span_id: span for span in collected.all_spans}
    legs = [span for span in spans.values() if span.name == "roundtrip.leg work"]
    assert len(legs) == (2 if era is Era.RETRY else 1)
    for leg in legs:
        assert leg.parent is not None
        request = spans[leg.parent.span_id]
        assert request.name == "tools/call work"
        assert request.kind is SpanKind.SERVER
        assert leg.end_time is not None
        assert request.end_time is not None
        assert leg.end_time <= request.end_time
    (work_span,) = [span for span in spans.values() if span.name == "work"]
    assert work_span.parent == context_of(legs[-1])
    await User(server, era=era).call("plain")
    in_thread, leg = [span for span in collected.all_spans if span.name in ("in a thread", "roundtrip.leg plain")]
    assert in_thread.parent == context_of(leg)
    await User(server, {"confirm_backorder": CANCEL}, era=era).call("order", ARGUMENTS)
    assert seen
    assert all(before is after for before, after in seen), "the span before a leg is current again"


async def test_span_reports_the_state_of_its_call(era: Era, collected: Collected) -> None:
    await User(bookshop(trace=collected.telemetry), ROUNDS, era=era).call("order", ARGUMENTS)
    told = attributes_of(collected.spans[-1])
    assert told["roundtrip.tool"] == "order"
    assert told["roundtrip.state"] == "completed"
    assert told["roundtrip.round"] == 2
    assert told["roundtrip.era"] == era.name.lower()
    assert told["roundtrip.leg"] == (3 if era is Era.RETRY else 1)
    assert told["mcp.method.name"] == "tools/call"
    assert "roundtrip.pending" not in told
    assert collected.spans[-1].status.status_code is StatusCode.UNSET
    events = [event for span in collected.spans for event in events_of(span)]
    assert [name for name, _ in events] == ["roundtrip.asked", "roundtrip.answered"] * 2
    keys = [told.get("roundtrip.keys") for name, told in events if name == "roundtrip.answered"]
    assert keys == ([("confirm_backorder",), ("how_many",)] if era is Era.LIVE else [None, None])


async def test_span_lists_questions_reasons_and_pending(collected: Collected) -> None:
    hopper = LegByLeg([bookshop(trace=collected.telemetry)])
    await hopper.leg("order", ARGUMENTS)
    await hopper.leg("order", ARGUMENTS, answers={}, state=hopper.token)
    first, second = collected.spans
    asked = {"roundtrip.key": "confirm_backorder", "roundtrip.reason": "new", "roundtrip.round": 1}
    assert events_of(first) == [("roundtrip.asked", asked)]
    assert attributes_of(second)["roundtrip.state"] == "awaiting_input"
    assert attributes_of(second)["roundtrip.pending"] == ("confirm_backorder",)
    assert attributes_of(second)["roundtrip.token.sent_bytes"] == len(hopper.token)
    answered, again = events_of(second)
    assert answered[0] == "roundtrip.answered"
    assert again == ("roundtrip.asked", {**asked, "roundtrip.reason": "missing", "roundtrip.round": 2})


async def test_nested_function_has_a_nested_span(collected: Collected) -> None:
    server = bookshop(trace=collected.telemetry)

    @server.tool()
    async def outer(ctx: Context[Any, Any]) -> str:
        return text_of(await ctx.mcp_server.call_tool("reserve", {"title": "Dune"}))

    assert (await User(server, era=Era.RETRY).call("outer")).text == "Dune: 7 left"
    inner, around = collected.spans
    assert inner.parent == context_of(around)
    assert attributes_of(inner)["roundtrip.within"] == attributes_of(around)["roundtrip.call"]


async def test_rejected_token_has_its_own_span_inside_the_request(
    collected: Collected, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected.become_the_provider_of_the_process(monkeypatch)
    hopper = LegByLeg([bookshop(trace=collected.telemetry, ttl=60)])
    await hopper.leg("order", ARGUMENTS)
    clock.advance(61)
    with pytest.raises(MCPError):
        await hopper.leg("order", ARGUMENTS, answers=ROUNDS[0], state=hopper.token)
    leg, rejected = collected.spans
    assert rejected.name == "roundtrip.rejected order"
    assert rejected.status.status_code is StatusCode.ERROR
    told = attributes_of(rejected)
    assert told["roundtrip.reason"] == "expired"
    assert told["roundtrip.call"] == attributes_of(leg)["roundtrip.call"]
    assert told["roundtrip.leg"] == 2
    assert linked_to(rejected) == [name_of(leg)]
    parents = {context_of(span).span_id: span.name for span in collected.all_spans}
    assert rejected.parent is not None
    assert parents[rejected.parent.span_id] == "tools/call order"
    (point,) = collected.points["roundtrip.rejections"]
    assert point.attributes == {"roundtrip.reason": "expired", "roundtrip.tool": "order"}


async def test_invented_client_fields_become_no_attributes(collected: Collected) -> None:
    with pytest.raises(MCPError):
        await LegByLeg([bookshop(trace=collected.telemetry)]).leg("made up", {}, answers={}, state="made up, too")
    (span,) = collected.spans
    assert span.name == "roundtrip.rejected"
    assert attributes_of(span)["roundtrip.reason"] == "malformed"
    (point,) = collected.points["roundtrip.rejections"]
    assert point.attributes == {"roundtrip.reason": "malformed"}


async def test_how_a_call_ended_is_in_its_span_and_counted(era: Era, collected: Collected) -> None:
    server = bookshop(trace=collected.telemetry)

    @server.tool()
    async def fail() -> str:
        raise LookupError("no such book: Neuromancer")

    @server.tool()
    async def sorry() -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="sorry")], is_error=True)

    await User(server, ROUNDS, era=era).call("order", ARGUMENTS)
    await User(server, {"how_many": {"copies": 1}}, era=era).call("order", {"title": "Dune"})
    await User(server, {"confirm_backorder": CANCEL}, era=era).call("order", ARGUMENTS)
    for tool in ("fail", "sorry"):
        await User(server, era=era).call(tool)
    told_of = [(span, attributes_of(span)) for span in collected.spans]
    ends = [
        (told["roundtrip.tool"], told["roundtrip.state"], told.get("error.type"), span.status.status_code)
        for span, told in told_of
        if told["roundtrip.state"] != "awaiting_input"
    ]
    assert ends == [
        ("order", "completed", None, StatusCode.UNSET),
        ("order", "completed", None, StatusCode.UNSET),
        ("order", "declined", None, StatusCode.UNSET),
        ("fail", "failed", "LookupError", StatusCode.ERROR),
        ("sorry", "completed", "tool_error", StatusCode.ERROR),
    ]
    (failed,) = [span for span, told in told_of if told["roundtrip.tool"] == "fail"]
    assert (failed.status.description, list(failed.events)) == (None, []), "no text of the error"
    counted = {tuple(labels(point).values()): number(point) for point in collected.points["roundtrip.calls"]}
    rounds = {
        tuple(labels(point).values())[:2]: histogram(point).sum for point in collected.points["roundtrip.call.rounds"]
    }
    assert counted == {
        ("order", "completed"): 2,
        ("order", "declined"): 1,
        ("fail", "failed", "LookupError"): 1,
        ("sorry", "completed", "tool_error"): 1,
    }
    assert rounds == {
        ("order", "completed"): 3,
        ("order", "declined"): 1,
        ("fail", "failed"): 0,
        ("sorry", "completed"): 0,
    }


@pytest.mark.parametrize(("passed", "waited"), [(42, 42), (-20, 0)], ids=["in time", "with a slow clock"])
async def test_waiting_time_spans_instances(collected: Collected, clock: Clock, passed: float, waited: float) -> None:
    hopper = LegByLeg([bookshop(), bookshop(trace=collected.telemetry)])
    await hopper.leg("order", ARGUMENTS)
    clock.advance(passed)
    await hopper.leg("order", ARGUMENTS, answers=ROUNDS[0], state=hopper.token)
    (point,) = collected.points["roundtrip.wait.duration"]
    assert histogram(point).count == 1
    assert histogram(point).sum == pytest.approx(waited, abs=0.01)
    told = dict(events_of(collected.spans[0]))["roundtrip.answered"]
    assert told["roundtrip.waited"] == pytest.approx(waited, abs=0.01)


async def test_metrics_count_rounds_and_tokens_and_are_labeled_by_names_alone(era: Era, collected: Collected) -> None:
    server = bookshop(trace=collected.telemetry)
    call = await User(server, ROUNDS, era=era).call("order", ARGUMENTS)
    (waits,) = collected.points["roundtrip.wait.duration"]
    assert (histogram(waits).count, labels(waits)) == (2, {"roundtrip.tool": "order"})
    sizes = [histogram(point) for point in collected.points.get("roundtrip.token.size", [])]
    sent = [len(token or "") for token in call.tokens]
    assert [(size.count, size.sum) for size in sizes] == ([(2, sum(sent))] if era is Era.RETRY else [])
    with pytest.raises(MCPError):
        await LegByLeg([server]).leg("order", ARGUMENTS, answers={}, state="r3s.x.y")
    assert collected.points
    names = {name for points in collected.points.values() for point in points for name in labels(point)}
    assert names == {"roundtrip.tool", "roundtrip.state", "roundtrip.reason"}
    reasons = [labels(point) for point in collected.points["roundtrip.questions"]]
    assert all(reason == {"roundtrip.tool": "order", "roundtrip.reason": "new"} for reason in reasons)


async def test_a_transcript_and_telemetry_may_be_had_together(era: Era, collected: Collected, path: Path) -> None:
    server = bookshop(trace=[Recorder(path), collected.telemetry])
    await User(server, ROUNDS, era=era).call("order", ARGUMENTS)
    (recorded,) = {line["call"] for line in raw_lines(path)}
    assert {attributes_of(span)["roundtrip.call"] for span in collected.spans} == {recorded}


class Broken(SpanProcessor):
    """Span processor that fails."""

    def on_start(self, span: Span, parent_context: otel_context.Context | None = None) -> None:
        raise OSError("no collector")


async def test_a_call_does_not_end_with_its_telemetry(collected: Collected, caplog: pytest.LogCaptureFixture) -> None:
    collected.tracers.add_span_processor(Broken())
    server = bookshop(trace=collected.telemetry)
    result = await User(server, ROUNDS, era=Era.RETRY).call("order", ARGUMENTS)
    assert result.text == "2 x Neuromancer, in 2-3 weeks"
    assert "a tracer failed when a call began" in caplog.text
