"""Starlette without MCP: a route that parses JSON and returns fixed bytes. No server on Starlette is faster."""

import json
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from benchmarks.asgi import PATH
from benchmarks.variants.variant import Variant
from benchmarks.workloads import CONSENT_MESSAGE, Confirm, Plain, Workload

_SERVER: Final = {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": ""}}
_TOKEN: Final = "t" * 142
"""As long as roundtrip's token."""


def build(workload: Workload) -> ASGIApp | None:
    """Create an application that returns the first response to a plain call, or to a call with one question."""
    match workload:
        case Plain(text=text):
            result = _finished(text)
        case Confirm():
            result = _asking()
        case _:
            return None
    content = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {**result, "_meta": _SERVER}}, separators=(",", ":"))

    async def answer(request: Request) -> Response:
        await request.json()
        return Response(content, media_type="application/json")

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])])


def _finished(text: str) -> dict[str, Any]:
    return {
        "content": [{"text": text, "type": "text"}],
        "isError": False,
        "resultType": "complete",
        "structuredContent": {"result": text},
    }


def _asking() -> dict[str, Any]:
    schema = {"properties": {"ok": {"type": "boolean", "title": "Ok"}}, "required": ["ok"], "type": "object"}
    params = {"message": CONSENT_MESSAGE, "mode": "form", "requestedSchema": schema}
    return {
        "inputRequests": {"consent": {"method": "elicitation/create", "params": params}},
        "requestState": _TOKEN,
        "resultType": "input_required",
    }


VARIANT = Variant(
    name="starlette",
    title="bare Starlette",
    imports="from starlette.applications import Starlette",
    note="a route that parses JSON and answers with fixed bytes; no MCP",
    build=build,
)
