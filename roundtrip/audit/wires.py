"""The audit's connections: streamable HTTP, and a command's standard streams.

A connection sends requests only to the named server. It does not follow redirects and does not use proxies.
"""

import itertools
import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
from mcp.shared.inbound import encode_header_value
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from roundtrip.audit.messages import WireResponse, read_response
from roundtrip.client.failures import quiet
from roundtrip.client.targets import UNCOMPRESSED, Target, TooLarge, size_limit
from roundtrip.client.terminal import Terminal
from roundtrip.revisions import FIRST_OF_RETRY_ERA

_MAX_RESPONSE_BYTES: Final = 32 * 2**20
_NAMED_BY: Final = ("name", "uri", "taskId")
_EVENT_STREAM: Final = "text/event-stream"


class HttpWire:
    """HTTP connection to a server.

    Args:
        http: The HTTP client.
        url: The server's address.
        patience: The maximum seconds for one request.
        users: The user's headers, and the other user's headers.
    """

    def __init__(
        self, http: httpx2.AsyncClient, url: str, patience: float, users: tuple[Mapping[str, str], Mapping[str, str]]
    ) -> None:
        self._http = http
        self._url = url
        self._timeout = patience
        self._users = users
        self._ids = itertools.count(1)

    async def send(
        self, method: str, params: Mapping[str, Any], *, headers: Mapping[str, str], is_other: bool = False
    ) -> WireResponse:
        """Send a request unchanged, and return the response.

        Args:
            method: The method.
            params: The parameters.
            headers: Additional HTTP headers.
            is_other: True to send the request as the other user.
        """
        id = next(self._ids)
        body = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        name = next((params[key] for key in _NAMED_BY if isinstance(params.get(key), str)), None)
        all_headers = {
            "content-type": "application/json",
            "accept": f"application/json, {_EVENT_STREAM}",
            "mcp-protocol-version": FIRST_OF_RETRY_ERA,
            "mcp-method": method,
            **({} if name is None else {"mcp-name": encode_header_value(name)}),
            **headers,
            **UNCOMPRESSED,
            **self._users[is_other],
        }
        try:
            with anyio.fail_after(self._timeout):
                async with self._http.stream("POST", self._url, content=body.encode(), headers=all_headers) as response:
                    if _media_type(response) == _EVENT_STREAM:
                        return await _from_events(response, id)
                    text = (await response.aread()).decode("utf-8", "replace")
                    return read_response(text, id=id, status=response.status_code)
        except (TimeoutError, httpx2.TimeoutException):
            return WireResponse(trouble=f"no response within {self._timeout:g} s")
        except TooLarge as error:
            return WireResponse(trouble=f"{error}")
        except httpx2.ConnectError as error:
            return WireResponse(trouble=f"no connection: {error or type(error).__name__}")
        except httpx2.TransportError as error:
            return WireResponse(trouble=f"a closed connection ({type(error).__name__})", is_cut=True)


@asynccontextmanager
async def http_wire(
    url: str, patience: float, users: tuple[Mapping[str, str], Mapping[str, str]]
) -> AsyncGenerator[HttpWire]:
    """Open a connection to an address; see `HttpWire` for the arguments."""
    async with httpx2.AsyncClient(
        timeout=httpx2.Timeout(patience),
        follow_redirects=False,
        # Ignore proxies from the environment, because requests must go only to the named server. OpenSSL itself reads
        # SSL_CERT_FILE.
        trust_env=False,
        verify=ssl.create_default_context(),
        event_hooks={"response": [size_limit(_MAX_RESPONSE_BYTES)]},
    ) as http:
        with quiet():
            yield HttpWire(http, url, patience, users)


def _media_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _from_events(response: httpx2.Response, id: int) -> WireResponse:
    requests: list[str] = []
    # `size_limit` already limits the whole response.
    async for event in httpx2.EventSource(response, max_event_size=None):
        read = read_response(event.data, id=id, status=response.status_code, requests=tuple(requests))
        message = read.message
        if message is not None and ("result" in message or "error" in message):
            return read
        if message is not None and "id" in message and "method" in message:
            requests.append(str(message["method"]))
    return WireResponse(status=response.status_code, trouble="a stream without a response", requests=tuple(requests))


class StdioWire:
    """Connection to a command over its standard streams."""

    def __init__(self, streams: tuple[Any, Any], timeout: float) -> None:
        self._read, self._write = streams
        self._timeout = timeout
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[anyio.Event, list[WireResponse]]] = {}
        self._requests: list[str] = []
        self._ended = False

    async def receive(self) -> None:
        """Receive messages until the command ends."""
        async for message in self._read:
            if not isinstance(message, SessionMessage):
                continue
            received = message.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
            if "method" in received:
                if "id" in received:
                    self._requests.append(str(received["method"]))
                continue
            waiting = self._waiting.pop(received.get("id", 0), None)
            if waiting is not None:
                waiting[1].append(WireResponse(received, text=json.dumps(received), requests=tuple(self._requests)))
                self._requests.clear()
                waiting[0].set()
        self._ended = True
        for event, _ in self._waiting.values():
            event.set()

    async def send(
        self, method: str, params: Mapping[str, Any], *, headers: Mapping[str, str], is_other: bool = False
    ) -> WireResponse:
        """Send a request, and return the response."""
        if self._ended:
            return WireResponse(trouble="the command has ended")
        id, event, responses = next(self._ids), anyio.Event(), list[WireResponse]()
        self._waiting[id] = (event, responses)
        try:
            with anyio.fail_after(self._timeout):
                await self._write.send(
                    SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=id, method=method, params=dict(params)))
                )
                await event.wait()
        except TimeoutError:
            self._waiting.pop(id, None)
            return WireResponse(trouble=f"no response within {self._timeout:g} s")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return WireResponse(trouble="the command has ended")
        return responses[0] if responses else WireResponse(trouble="the command has ended")


AuditWire = HttpWire | StdioWire
"""Connection that sends requests without changing them."""


@asynccontextmanager
async def stdio_wire(target: Target, terminal: Terminal, *, patience: float) -> AsyncGenerator[StdioWire]:
    """Start a command and connect to it. Stop the command when the block ends."""
    with quiet():
        async with target.connect(terminal) as streams, anyio.create_task_group() as group:
            wire = StdioWire(streams, patience)
            group.start_soon(wire.receive)
            yield wire
            group.cancel_scope.cancel()
