"""Stand in for AWS Lambda and its triggers: turn requests into the events that AWS documents, one at a time."""

import asyncio
import base64
import itertools
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
from mcp.server import MCPServer

from roundtrip.tracing import Beginning, TokenRejection
from tests.kit.wire import EVERYTHING, headers_of, meta_of

Handler = Callable[[Mapping[str, Any], Any], dict[str, Any]]
Json = dict[str, Any]

EVENTS: Final = Path(__file__).parent / "events"
_ids = itertools.count(1)


class LambdaContext:
    """The part of Lambda's context that tells the time left."""

    def __init__(self, seconds: float = 60) -> None:
        self._ends = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int((self._ends - time.monotonic()) * 1000)


def event_of(name: str = "function_url", **members: Any) -> Json:
    """Return an event that AWS documents, with other members."""
    return json.loads((EVENTS / f"{name}.json").read_text(encoding="utf-8")) | members


def request_event(
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
    path: str = "/mcp",
    name: str = "function_url",
) -> Json:
    """Return the event of one request; the platform encodes its body."""
    event = event_of(name, rawPath=path, body=base64.b64encode(body).decode(), isBase64Encoded=True)
    event["headers"] |= {"content-type": "application/json", **(headers or {})}
    event["requestContext"]["http"] |= {"method": method, "path": path}
    return event


def rest_event(body: bytes, headers: Mapping[str, str], *, method: str, path: str) -> Json:
    """Return the event of one request to a REST API, which has payload format 1.0."""
    event = event_of("rest_api", path=path, httpMethod=method)
    return event | {
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
        "headers": dict(headers),
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
    }


def rpc_event(method: str, params: Json | None = None, **options: Any) -> Json:
    """Return the event of a JSON-RPC request of 2026-07-28."""
    whole = {**(params or {}), "_meta": meta_of("wire", EVERYTHING)}
    body = {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": whole}
    return request_event(json.dumps(body).encode(), headers_of(method, params), **options)


def call_event(tool: str, arguments: Json | None = None, **more: Any) -> Json:
    """Return the event of one leg of a tool call, with `more` as further parameters of the request."""
    return rpc_event("tools/call", {"name": tool, "arguments": arguments or {}, **more})


def json_of(response: Json) -> Json:
    return json.loads(response["body"])


class BatchingTracer:
    """Tracer that keeps what it is told until it is flushed."""

    def __init__(self, saved: list[str]) -> None:
        self._kept: list[str] = []
        self._saved = saved

    def begin(self, beginning: Beginning) -> Any:
        self._kept.append(beginning.tool)
        return print

    def reject(self, rejection: TokenRejection) -> None:
        self._kept.append(str(rejection.reason))

    def flush(self) -> None:
        self._saved += self._kept
        self._kept.clear()


def failing_once() -> Callable[[MCPServer[str]], AbstractAsyncContextManager[str]]:
    """Return a lifespan that fails when it is entered for the first time."""
    failures = iter([ConnectionError("no database yet")])

    @asynccontextmanager
    async def lifespan(server: MCPServer[str]) -> AsyncGenerator[str]:
        for failure in failures:
            raise failure
        yield server.name

    return lifespan


class LambdaTransport(httpx2.AsyncBaseTransport):
    """Transport of a real client whose requests are events: one at a time, in a thread, as the loop runs here."""

    def __init__(self, handler: Handler, to_event: Callable[..., Json] = request_event) -> None:
        self._handler = handler
        self._to_event = to_event
        self._thread = ThreadPoolExecutor(1)
        self._runner = asyncio.Runner()
        # Mangum takes the event loop of its thread.
        self._thread.submit(lambda: asyncio.set_event_loop(self._runner.get_loop()))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        event = self._to_event(
            await request.aread(), dict(request.headers), method=request.method, path=request.url.path
        )
        context = LambdaContext()
        response = await asyncio.get_running_loop().run_in_executor(self._thread, self._handler, event, context)
        body = response["body"]
        content = base64.b64decode(body) if response["isBase64Encoded"] else body.encode()
        # An event of payload format 1.0 has lists of values in its response.
        listed = {name: ",".join(values) for name, values in response.get("multiValueHeaders", {}).items()}
        headers = {**response.get("headers", {}), **listed}
        return httpx2.Response(response["statusCode"], headers=headers, content=content)

    async def aclose(self) -> None:
        self._thread.submit(self._runner.close)
        self._thread.shutdown()
