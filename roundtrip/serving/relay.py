"""Session relay: with several workers, each request of an older client's session reaches the worker that has it.

A session id begins with the name of the worker that opened the session, its owner. Any other worker passes the request
on to the owner's Unix socket. The owner checks host, login and limits itself, and serves the request as usual. Only
processes of the same user can enter the folder of the sockets, so a client cannot reach a socket.

The name in an id only selects a socket. A request whose owner does not exist stays here, and gets the answer of the
SDK's session manager for unknown sessions.
"""

import asyncio
import errno
import json
import logging
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final

import anyio
import h11
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roundtrip.http.connections import replaying
from roundtrip.limited_logs import LimitedLog
from roundtrip.revisions import is_live_era
from roundtrip.serving.application import ProcessState

_FOLDER_VARIABLE: Final = "ROUNDTRIP_SESSION_FOLDER"
"""Environment variable by which workers inherit the folder. A worker of an earlier roundtrip version ignores it."""
_SESSION: Final = MCP_SESSION_ID_HEADER.lower().encode()
_VERSION: Final = MCP_PROTOCOL_VERSION_HEADER.lower().encode()
_NAME_BYTES: Final = 8
_ID: Final = re.compile(rb"([0-9a-f]{16})\.([!-~]{1,128})")
"""A session id: the owner's name, and the id that the SDK gave the session."""
_UNKNOWN_ID: Final = b"unknown"
_PEER: Final = b"roundtrip-relayed-for"
"""Header with the client's address, which only requests on a worker's own socket may have."""
_PEER_FACTS: Final = ("client", "scheme", "server")
_CONNECTION_HEADERS: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
"""Headers that describe one connection."""
_UNSENT_HEADERS: Final = _CONNECTION_HEADERS | {b"expect", _PEER}
_UNRETURNED_HEADERS: Final = _CONNECTION_HEADERS | {b"date", b"server"}
"""The owner's headers that this worker adds itself."""
_CHUNK_BYTES: Final = 2**16

_log = LimitedLog(logging.getLogger("roundtrip"))


@contextmanager
def session_folder(environment: MutableMapping[str, str]) -> Generator[None]:
    """Make the folder for the workers' sockets, and remove it at the end. Workers inherit it by the environment.

    Raises:
        OSError: The folder cannot hold sockets.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this system has no Unix sockets")
    folder = tempfile.mkdtemp(prefix="roundtrip-sessions-")
    try:
        # A long path or an unusual file system shows here, before any client has a session.
        SessionRelay(folder).listen().close()
        environment[_FOLDER_VARIABLE] = folder
        yield
    finally:
        environment.pop(_FOLDER_VARIABLE, None)
        shutil.rmtree(folder, ignore_errors=True)


def inherited_relay(environment: MutableMapping[str, str]) -> "SessionRelay | None":
    """Return the relay of this worker, or None if the supervisor made no folder. Tools do not inherit the folder."""
    folder = environment.pop(_FOLDER_VARIABLE, None)
    return SessionRelay(folder) if folder is not None else None


class SessionRelay:
    """One worker's name and socket in the folder that all workers share.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.name = secrets.token_hex(_NAME_BYTES)

    def listen(self) -> socket.socket:
        """Open this worker's socket.

        Raises:
            OSError: The folder is missing, or its path is too long.
        """
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(str(self._folder / self.name))
        except OSError:
            listening.close()
            raise
        return listening

    def close(self) -> None:
        """Remove the socket's name, so that other workers find that this worker has ended."""
        with suppress(OSError):
            os.unlink(self._folder / self.name)

    def connect(self, name: str) -> socket.socket | None:
        """Connect to another worker; return None if it has ended.

        Raises:
            OSError: The other worker has too many waiting connections, or this process has too many open files.
        """
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.setblocking(False)
            connected.connect(str(self._folder / name))
        except OSError as error:
            connected.close()
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
                return None
            raise
        return connected

    def around(self, state: ProcessState, app: ASGIApp) -> ASGIApp:
        """Put the relay in front of the SDK's application, which has this worker's sessions."""
        return _RelayedSessions(self, state, app)

    def entry(self, app: ASGIApp) -> ASGIApp:
        """Return the application for requests on this worker's own socket."""
        return _RelayedRequests(app)


class _RelayedRequests:
    """ASGI application for requests from other workers. It restores the addresses of the client's connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        facts = json.loads(next(value for name, value in scope["headers"] if name == _PEER))
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != _PEER]
        for name in ("client", "server"):
            facts[name] = tuple(facts[name]) if facts[name] is not None else None
        scope.update(facts)
        await self._app(scope, receive, send)


class _RelayedSessions:
    """ASGI middleware that adds the owner's name to this worker's sessions, and passes the others on."""

    def __init__(self, relay: SessionRelay, state: ProcessState, app: ASGIApp) -> None:
        self._relay = relay
        self._state = state
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http" or not _is_live(scope):
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _SESSION), None)
        match = _ID.fullmatch(given) if given is not None else None
        owner, own_id = (match[1].decode(), match[2]) if match is not None else ("", _UNKNOWN_ID)
        if owner and owner != self._relay.name:
            own_id = _UNKNOWN_ID
            try:
                connected = self._relay.connect(owner)
            except OSError:
                await _reject_busy(scope, receive, send)
                return
            if connected is not None:
                passed = _RelayedExchange(scope, receive, send)
                if await passed.run(connected):
                    return
                await self._serve_broken(passed, owner)
                return
        await self._serve_here(scope, receive, send, own_id if given is not None else None)

    async def _serve_here(self, scope: Scope, receive: Receive, send: Send, session: bytes | None) -> None:
        if session is not None:
            headers = [(name, value) for name, value in scope["headers"] if name != _SESSION]
            scope = {**scope, "headers": [*headers, (_SESSION, session)]}
        prefix = f"{self._relay.name}.".encode()

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = [(name, prefix + value if name == _SESSION else value) for name, value in message["headers"]]
                message = {**message, "headers": named}
            await send(message)

        await self._app(scope, receive, send_named)

    async def _serve_broken(self, passed: "_RelayedExchange", owner: str) -> None:
        """End a response whose owner has broken it off."""
        scope, receive, send = passed.scope, passed.receive, passed.send
        if not passed.has_begun:
            # The request's body is lost, but no answer to an unknown session needs it.
            receive = replaying([{"type": "http.request", "body": b"", "more_body": False}], receive)
            try:
                connected = self._relay.connect(owner)
                if connected is None:
                    await self._serve_here(scope, receive, send, _UNKNOWN_ID)
                    return
                connected.close()
            except OSError:
                pass
            await _reject_busy(scope, receive, send)
            return
        _log.warning("the worker that had a session ended in the middle of a response")
        exchange = self._state.requests.get(id(scope))
        if passed.is_stream and (exchange is None or not await exchange.stop()):
            # An aborted stream looks like a failure to the client and in the log.
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _RelayedExchange:
    """One request that this worker passes on, and its response.

    Neither direction is buffered here: each waits until the slower side has taken the last part.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.has_begun = False
        """True if the response has begun."""
        self.is_stream = False
        """True if the response is a stream of events."""
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_CHUNK_BYTES)

    async def run(self, connected: socket.socket) -> bool:
        """Pass the request on; return False if the owner breaks its response off.

        If the client disconnects, this worker disconnects from the owner.
        """
        try:
            head = self._connection.send(_head_of(self.scope))
        except h11.LocalProtocolError:
            connected.close()
            await PlainTextResponse("Invalid HTTP request", HTTPStatus.BAD_REQUEST)(self.scope, self.receive, self.send)
            return True
        with connected:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass_request, connected, head or b"", tasks.cancel_scope)
                is_complete = await self._pass_response(connected)
                tasks.cancel_scope.cancel()
                return is_complete
            # The client has disconnected.
            return True

    async def _pass_request(self, connected: socket.socket, data: bytes, exchange: anyio.CancelScope) -> None:
        """Pass the request on, and then watch for the client's disconnection."""
        loop = asyncio.get_running_loop()
        while True:
            # If the owner reads no more, its response says why.
            with suppress(ConnectionError):
                await loop.sock_sendall(connected, data)
            message = await self.receive()
            if message["type"] != "http.request":
                break
            data = self._connection.send(h11.Data(data=message.get("body", b""))) or b""
            if not message.get("more_body", False):
                data += self._connection.send(h11.EndOfMessage()) or b""
        exchange.cancel()

    async def _pass_response(self, connected: socket.socket) -> bool:
        """Pass the response on; return False if it breaks off."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                event = self._connection.next_event()
                if event is h11.NEED_DATA:
                    self._connection.receive_data(await loop.sock_recv(connected, _CHUNK_BYTES))
                    continue
            except (ConnectionError, h11.RemoteProtocolError):
                return False
            if isinstance(event, h11.Response):
                headers = [(name, value) for name, value in event.headers if name not in _UNRETURNED_HEADERS]
                self.has_begun = True
                self.is_stream = dict(headers).get(b"content-type", b"").startswith(b"text/event-stream")
                await self.send({"type": "http.response.start", "status": event.status_code, "headers": headers})
            elif isinstance(event, h11.Data):
                await self.send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            elif isinstance(event, h11.EndOfMessage):
                await self.send({"type": "http.response.body", "body": b"", "more_body": False})
                return True


def _is_live(scope: Scope) -> bool:
    """Return True for a request that may belong to a session; later revisions have none."""
    version = next((value for name, value in scope["headers"] if name == _VERSION), None)
    return version is None or is_live_era(version.decode("latin-1"))


def _head_of(scope: Scope) -> h11.Request:
    """Return the head of a request as its owner gets it.

    Raises:
        LocalProtocolError: The head is not valid HTTP.
    """
    headers = [(name, value) for name, value in scope["headers"] if name not in _UNSENT_HEADERS]
    if any(name == b"transfer-encoding" for name, _ in scope["headers"]):
        headers = [(name, value) for name, value in headers if name != b"content-length"]
        headers.append((b"transfer-encoding", b"chunked"))
    facts = json.dumps({name: scope.get(name) for name in _PEER_FACTS})
    target: bytes = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    return h11.Request(method=scope["method"], target=target, headers=[*headers, (_PEER, facts.encode())])


async def _reject_busy(scope: Scope, receive: Receive, send: Send) -> None:
    response = PlainTextResponse("Service Unavailable", HTTPStatus.SERVICE_UNAVAILABLE, {"retry-after": "1"})
    await response(scope, receive, send)
