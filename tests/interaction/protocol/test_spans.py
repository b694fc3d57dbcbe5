"""The SDK's spans are skipped if no collector would see them, and the client's trace context survives that."""

from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types import RequestParamsMeta
from opentelemetry.trace import format_trace_id, get_current_span

from roundtrip import Server
from roundtrip.testing import Era
from tests.kit.players import connect, text_of

pytestmark = pytest.mark.anyio

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def _telling() -> Server[Any]:
    server = Server[Any]("spans")

    @server.tool
    def trace_id() -> str:
        return format_trace_id(get_current_span().get_span_context().trace_id)

    return server


async def test_client_trace_reaches_the_tool_without_a_provider(era: Era) -> None:
    metas: list[Mapping[str, Any]] = [
        {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"},
        {"progressToken": 1},
        {},
    ]
    async with connect(_telling(), era) as client:
        known = [
            text_of(await client.session.call_tool("trace_id", {}, meta=RequestParamsMeta(**meta))) for meta in metas
        ]

    assert known == [TRACE, "0" * 32, "0" * 32]
