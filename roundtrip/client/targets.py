"""Targets of calls: a server at an address, a server in this process, or a stdio command."""

import os
import re
import shlex
import shutil
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from glob import glob
from typing import Any, Final, TextIO
from urllib.parse import urlsplit

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from roundtrip.client.failures import CallFailed, ExitCode
from roundtrip.client.terminal import Terminal
from roundtrip.text import printable, suggestion

_URL: Final = re.compile(r"https?://", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}", re.ASCII)
_CONNECT_SECONDS: Final = 30.0
_MAX_LINE_BYTES: Final = 65536
_MIB: Final = 2**20
_MAX_RESPONSE_BYTES: Final = 32 * _MIB
_ADVICE: Final = {
    401: "; pass credentials with --header",
    403: "; pass credentials with --header",
    404: "; is there an MCP server at this path? The default path is /mcp",
}
_LAST_LINES_SECONDS: Final = 1.0

UNCOMPRESSED: Final = {"accept-encoding": "identity"}
"""Request headers that prevent compressed responses, because `size_limit` rejects compressed responses."""


class TooLarge(Exception):
    """A response exceeds its size limit."""


class _LimitedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._body = body
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._max_bytes
        async for part in self._body:
            left -= len(part)
            if left < 0:
                raise TooLarge(f"the response is larger than {self._max_bytes // _MIB} MiB")
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()


def size_limit(max_bytes: int) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return a response hook that limits how many bytes are read. Without a limit, a server could send data forever.

    The hook raises TooLarge for a compressed response, because a decompressed response may have any size.
    """

    async def limit(response: httpx2.Response) -> None:
        if "content-encoding" in response.headers:
            raise TooLarge("the response is compressed, although the request did not accept compression")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _LimitedBody(response.stream, max_bytes)

    return limit


_limit_response: Final = size_limit(_MAX_RESPONSE_BYTES)


@dataclass(slots=True)
class Target:
    """One server."""

    url: str | None = None
    command: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    server: Any = None
    """A server in this process. It replaces the address and the command."""
    status: int | None = None
    """The last HTTP error status (400 or higher)."""

    @property
    def status_text(self) -> str:
        """Return the last HTTP error status and advice, to append to an error message; "" if there was no error."""
        if self.status is None:
            return ""
        return f" (HTTP status {self.status}{_ADVICE.get(self.status, '')})"

    def connection(self, terminal: Terminal) -> Any:
        """Return the first argument for `mcp.Client`: the server in this process, or a transport."""
        return self.server if self.server is not None else self.connect(terminal)

    @asynccontextmanager
    async def connect(self, terminal: Terminal) -> AsyncGenerator[Any]:
        """Open a connection's two streams. If the target is a command, show its standard error."""
        if self.url is not None:
            # Do not set a read timeout. The caller limits the wait, except while a person answers.
            timeout = httpx2.Timeout(_CONNECT_SECONDS, read=None)
            async with (
                httpx2.AsyncClient(
                    headers={**UNCOMPRESSED, **self.headers},
                    timeout=timeout,
                    event_hooks={"response": [self._record_status]},
                ) as http,
                streamable_http_client(self.url, http_client=http) as streams,
            ):
                yield streams
            return
        program, *arguments = self.command
        if shutil.which(program) is None:
            near = suggestion(program, glob("*.py")) or (
                "; the server must be a file or object (shop.py, shop.app:server), an http(s) address, or the command "
                'of a stdio server in quotes: "python my_server.py"'
            )
            raise CallFailed(f"cannot find the program {program!r}{near}", ExitCode.NO_CONNECTION)
        parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
        with _show_lines(terminal) as log:
            async with stdio_client(parameters, errlog=log) as streams:
                yield streams

    async def _record_status(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self.status = response.status_code
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            # Do not limit an event stream's total size, because the stream stays open while the person answers. The SDK
            # limits the size of each event.
            await _limit_response(response)


def target_of(text: str, headers: Sequence[str] = ()) -> Target:
    """Parse a target, which is an http(s) address or a command. A command is split as a shell would split it.

    Raises:
        CallFailed: The text is neither an address nor a command, or a header is invalid.
    """
    if _URL.match(text):
        _check_address(text)
        return Target(url=text, headers=dict(_header(number, header) for number, header in enumerate(headers, 1)))
    if _SCHEME.match(text):
        raise CallFailed(f"{text!r} is not an http(s) address; pass an address, or the command of a stdio server")
    if headers:
        raise CallFailed("--header works only with an http(s) address; a command has no headers")
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise CallFailed(f"the command {text!r} cannot be split into words: {error}") from error
    if not command:
        raise CallFailed("the server must not be empty; pass an http(s) address, or the command of a stdio server")
    return Target(command=command)


def _check_address(text: str) -> None:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise CallFailed(f"the address {text!r} is invalid: {error}") from error
    if not host or port == 0:
        raise CallFailed(f"the address {text!r} must have {'a port greater than 0' if host else 'a host'}")


def _header(number: int, text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    # Do not repeat the header in the message, because it may be a secret.
    if not colon or not _HEADER_NAME.fullmatch(name):
        raise CallFailed(f"header {number} must be written 'Name: value'")
    for variable in _VARIABLE.findall(value):
        if variable not in os.environ:
            raise CallFailed(f"the header {name!r} needs the environment variable {variable}, which is not set")
    value = _VARIABLE.sub(lambda match: os.environ[match[1]], value).strip()
    if not value.isascii() or not value.isprintable():
        raise CallFailed(f"the value of the header {name!r} must be printable ASCII")
    return name, value


@contextmanager
def _show_lines(terminal: Terminal) -> Generator[TextIO]:
    """Open a file for a process's standard error. Show each line that the process writes, with control characters
    escaped.
    """
    reading, writing = os.pipe()

    def show() -> None:
        with os.fdopen(reading, "rb") as lines:
            while line := lines.readline(_MAX_LINE_BYTES):
                terminal.say(f"server: {printable(line.decode('utf-8', 'replace').rstrip())}", style="dim")

    reader = threading.Thread(target=show, daemon=True)
    reader.start()
    try:
        with os.fdopen(writing, "w", encoding="utf-8") as log:
            yield log
    finally:
        # Limit the wait, because a child process may still be running and keep the other end of the pipe open.
        reader.join(_LAST_LINES_SECONDS)
