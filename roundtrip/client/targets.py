"""Where a server is: an address, or a command that serves stdio."""

import os
import re
import shlex
import shutil
import threading
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TextIO
from urllib.parse import urlsplit

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from roundtrip.client.bounds import bound, uncompressed
from roundtrip.client.endings import CallFailed, ExitCode
from roundtrip.client.terminal import Terminal
from roundtrip.safe_text import printable

__all__ = ["Target", "target_of"]

_URL: Final = re.compile(r"https?://", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}", re.ASCII)
_CONNECT_SECONDS: Final = 30.0
_LINE: Final = 65536
_MOST_BYTES: Final = 32 * 1024 * 1024
"""Of one answer."""
_LAST_WORDS_SECONDS: Final = 1.0


@dataclass(slots=True)
class Target:
    """A server that can be connected to."""

    url: str | None = None
    command: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    status: int | None = None
    """The last HTTP status that told of a failure."""

    @asynccontextmanager
    async def connect(self, terminal: Terminal) -> AsyncGenerator[Any]:
        """The two streams of the connection. What a command writes to standard error is shown."""
        if self.url is not None:
            # How long to wait for an answer is decided above: a person may be thinking meanwhile.
            timeout = httpx2.Timeout(_CONNECT_SECONDS, read=None)
            async with (
                httpx2.AsyncClient(
                    headers={**uncompressed(), **self.headers},
                    timeout=timeout,
                    event_hooks={"response": [self._note]},
                ) as carrier,
                streamable_http_client(self.url, http_client=carrier) as streams,
            ):
                yield streams
            return
        program, *arguments = self.command
        if shutil.which(program) is None:
            raise CallFailed(_no_program(program), ExitCode.NO_CONNECTION)
        parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
        with _shown(terminal) as log:
            async with stdio_client(parameters, errlog=log) as streams:
                yield streams

    async def _note(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self.status = response.status_code
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            # A stream may go on for as long as somebody thinks; the SDK bounds each event of it.
            bound(response, most=_MOST_BYTES)


def target_of(text: str, headers: Sequence[str] = ()) -> Target:
    """An http(s) address, or a command as a shell would split it.

    Raises:
        CallFailed: It is neither, or a header cannot be read.
    """
    if _URL.match(text):
        _check_address(text)
        return Target(url=text, headers=dict(_header(number, header) for number, header in enumerate(headers, 1)))
    if _SCHEME.match(text):
        raise CallFailed(f"{text!r} is no address of http(s); give one, or a command that serves stdio")
    if headers:
        raise CallFailed("--header is for addresses; a command has no headers")
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise CallFailed(f"the command {text!r} cannot be split into words: {error}") from error
    if not command:
        raise CallFailed("there is no server; give an http(s) address or a command that serves stdio")
    return Target(command=command)


def _check_address(text: str) -> None:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise CallFailed(f"the address {text!r} cannot be read: {error}") from error
    if not host or port == 0:
        raise CallFailed(f"the address {text!r} names no {'port' if host else 'host'} that can be reached")


def _no_program(name: str) -> str:
    file, extension, _ = name.partition(".py")
    example = f"python {file}.py" if extension else "python my_server.py"
    return (
        f"there is no program {name!r} to start; name an http(s) address, or the whole command of a server that serves "
        f'stdio, in quotes: "{example}"'
    )


def _header(number: int, text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    # The text is not repeated: it may be a secret, with a colon forgotten.
    if not colon or not _HEADER_NAME.fullmatch(name):
        raise CallFailed(f"header {number} has to be written 'Name: value'")
    for variable in _VARIABLE.findall(value):
        if variable not in os.environ:
            raise CallFailed(f"the header {name!r} needs the environment variable {variable}, which is not set")
    value = _VARIABLE.sub(lambda found: os.environ[found[1]], value).strip()
    if not value.isascii() or not value.isprintable():
        raise CallFailed(f"the value of the header {name!r} has to be printable ASCII")
    return name, value


@contextmanager
def _shown(terminal: Terminal) -> Generator[TextIO]:
    """A file for a process's standard error, shown line by line as it comes, made safe."""
    reading, writing = os.pipe()

    def show() -> None:
        with os.fdopen(reading, "rb") as lines:
            while line := lines.readline(_LINE):
                terminal.say(f"server: {printable(line.decode('utf-8', 'replace').rstrip())}", style="dim")

    reader = threading.Thread(target=show, daemon=True)
    reader.start()
    try:
        with os.fdopen(writing, "w", encoding="utf-8") as log:
            yield log
    finally:
        # A process that the server left behind may hold the other end open for ever.
        reader.join(_LAST_WORDS_SECONDS)
