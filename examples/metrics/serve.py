"""A cinema with metrics that Prometheus scrapes on port 9464."""

import os

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

from roundtrip import Context, Server, Telemetry

set_meter_provider(MeterProvider([PrometheusMetricReader()]))
server = Server("cinema", trace=Telemetry())


@server.tool()
async def book(film: str, ctx: Context) -> str:
    """Book seats."""
    return f"{film}: {await ctx.ask('seats', 'How many?', int)} seats."


def make_server() -> Server:
    """Return the server, and serve its metrics on another port."""
    start_http_server(int(os.environ.get("METRICS_PORT", "9464")), addr="127.0.0.1")
    return server
