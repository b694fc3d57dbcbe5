"""One process's spans and metrics, as OpenTelemetry's SDK receives them."""

from collections.abc import Mapping, Sequence
from typing import Any

import mcp.shared._otel
import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

import roundtrip.server.attach
from tests.interaction.secrecy.markers import Spans

__all__ = [
    "Collected",
    "attributes_of",
    "context_of",
    "events_of",
    "histogram",
    "labels",
    "linked_to",
    "name_of",
    "number",
]


class Collected(Spans):
    """One process's spans and metrics, as OpenTelemetry objects."""

    @property
    def all_spans(self) -> Sequence[ReadableSpan]:
        """Return every span, in the order in which they ended."""
        return self.exporter.get_finished_spans()

    def become_the_provider_of_the_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Become the provider for requests. A process can set its real provider only once."""
        monkeypatch.setattr(mcp.shared._otel, "_tracer", self.tracers.get_tracer("mcp"))
        monkeypatch.setattr(roundtrip.server.attach, "get_tracer_provider", lambda: self.tracers)

    @property
    def spans(self) -> list[ReadableSpan]:
        """Return roundtrip's spans."""
        return [span for span in self.all_spans if span.name.startswith("roundtrip.")]

    @property
    def points(self) -> dict[str, list[NumberDataPoint | HistogramDataPoint]]:
        """Return the metric points so far, by metric name."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        metrics = [
            metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
        ]
        return {
            metric.name: [
                point for point in metric.data.data_points if isinstance(point, NumberDataPoint | HistogramDataPoint)
            ]
            for metric in metrics
        }


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def attributes_of(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def events_of(span: ReadableSpan) -> list[tuple[str, Mapping[str, Any]]]:
    return [(event.name, dict(event.attributes or {})) for event in span.events]


def linked_to(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def name_of(span: ReadableSpan) -> tuple[int, int]:
    context = context_of(span)
    return context.trace_id, context.span_id


def labels(point: NumberDataPoint | HistogramDataPoint) -> Mapping[str, Any]:
    return point.attributes or {}


def number(point: NumberDataPoint | HistogramDataPoint) -> float:
    assert isinstance(point, NumberDataPoint)
    return point.value


def histogram(point: NumberDataPoint | HistogramDataPoint) -> HistogramDataPoint:
    assert isinstance(point, HistogramDataPoint)
    return point
