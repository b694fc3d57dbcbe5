"""AWS Lambda handler that serves all events on one event loop, which stays open between events.

The process runs only while the handler runs, so all work for an event must be finished when the handler returns.
"""

import asyncio
import atexit
import logging
import math
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Unpack

from starlette.types import Message, Scope

from roundtrip.http.connections import HttpOptions
from roundtrip.server.server import Server
from roundtrip.serverless.application import FLUSH_SECONDS, ServerlessApp, json_body, request_id_in
from roundtrip.serverless.lambda_events import CollectedResponse, body_of, scope_of

logger = logging.getLogger("roundtrip")

_RESERVE_SECONDS: Final = 0.5
_SERVER_ERROR: Final = -32000
_OUT_OF_TIME: Final = "the function's time limit ended the request; raise the function's timeout"


def lambda_handler(
    server: Server[Any], *, reserve: float = _RESERVE_SECONDS, **options: Unpack[HttpOptions]
) -> Callable[[Mapping[str, Any], Any], dict[str, Any]]:
    """Return the function that AWS Lambda calls with each event from a function URL or an HTTP API.

    The server's lifespan starts at the first event, and ends when the process ends normally. Requests have Lambda's
    event and context in their ASGI scope, as `aws.event` and `aws.context`.

    Args:
        server: The server, with all its tools.
        reserve: A request is cancelled this many seconds before the function's time limit. The client can then get an
            error before Lambda ends the process.
        **options: Options for `streamable_http_app`. By default, `stateless_http` and `json_response` are on, and any
            `Host` is accepted.

    Raises:
        TypeError: `server` is not a `roundtrip.Server`.
        ValueError: `reserve` is not a number of seconds, or is negative.

    Example:
        ```python
        handler = lambda_handler(server)
        ```
    """
    if isinstance(reserve, str) or not 0 <= reserve < math.inf:
        raise ValueError(f"reserve= must be 0 or more seconds, got {reserve!r}")
    return _LambdaProcess(ServerlessApp(server, streams=False, options=options), reserve=reserve).handle


class _LambdaProcess:
    """One process's event loop, and the application that runs on this loop."""

    def __init__(self, app: ServerlessApp, *, reserve: float) -> None:
        self._app = app
        self._reserve = reserve
        self._runner: asyncio.Runner | None = None
        # Lambda sends one event at a time; a local runner may send several.
        self._lock = threading.Lock()

    def handle(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        """Serve one event."""
        scope, body = scope_of(event, context), body_of(event)
        # A local run may have no context.
        seconds = math.inf if context is None else context.get_remaining_time_in_millis() / 1000 - self._reserve
        with self._lock:
            return self._loop().run_until_complete(self._serve(scope, body, seconds))

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            atexit.register(self._close, self._runner)
        return self._runner.get_loop()

    def _close(self, runner: asyncio.Runner) -> None:
        """Leave the lifespan, and close the event loop."""
        with runner:
            runner.run(self._app.stop())

    async def _serve(self, scope: Scope, body: bytes, seconds: float) -> dict[str, Any]:
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        response = CollectedResponse()

        async def receive() -> Message:
            if not messages:
                # Lambda does not report when a client disconnects.
                await asyncio.Event().wait()
            return messages.pop()

        async def send(message: Message) -> None:
            response.add(message)

        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        serving = asyncio.create_task(self._app.serve(scope, receive, send))
        in_time = await _wait_until_ended(serving, max(0.0, seconds))
        if not in_time:
            serving.cancel()
            await _wait_until_ended(serving, self._reserve / 3)
            logger.error("the function's time limit ended a request; raise the function's timeout")
        await self._app.flush(min(FLUSH_SECONDS, deadline + self._reserve * 2 / 3 - now()))
        if response.is_complete:
            return response.to_lambda()
        if in_time:
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, b"text/plain", b"Internal Server Error")
        error = json_body(request_id_in(body), _SERVER_ERROR, _OUT_OF_TIME, reason="out_of_time")
        return _response(HTTPStatus.OK, b"application/json", error)


async def _wait_until_ended(serving: "asyncio.Task[None]", seconds: float) -> bool:
    """Wait for a request and log its error; return False if the request is still running after the given seconds."""
    done, _ = await asyncio.wait({serving}, timeout=seconds if seconds < math.inf else None)
    if done and not serving.cancelled() and (error := serving.exception()) is not None:
        logger.error("a request failed", exc_info=error)
    return bool(done)


def _response(status: int, kind: bytes, body: bytes) -> dict[str, Any]:
    response = CollectedResponse()
    response.add({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    response.add({"type": "http.response.body", "body": body})
    return response.to_lambda()
