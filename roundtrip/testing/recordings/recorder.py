"""`record`: listens to a conversation, and writes down who said what in reply to what."""

from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Final

from mcp.client import Transport
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer
from mcp.server.lowlevel import Server

from roundtrip.testing import tap
from roundtrip.testing.hosting import served
from roundtrip.testing.recordings.document import Recording
from roundtrip.testing.recordings.pairing import Unrecordable, paired

__all__ = ["Recorded", "record"]

_STRUCTURE: Final = frozenset({"action", "content", "method", "mode", "name", "resultType", "role", "type", "uri"})
"""Fields that a recording cannot do without."""


class Recorded(AbstractAsyncContextManager[Any]):
    """A transport to a server that is listened to: for one `Client` after another."""

    def __init__(self, target: Transport | StdioServerParameters | str) -> None:
        self._target = target
        self._conversations: list[list[tap.Message]] = []
        self._open: tap.Tap | None = None

    async def __aenter__(self) -> Any:
        if self._open is not None:
            raise Unrecordable("one client is recorded at a time: close the first one before the next connects")
        tapped = tap.Tap(self._connected())
        self._conversations.append(tapped.messages)
        streams = await tapped.__aenter__()
        self._open = tapped
        return streams

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        tapped, self._open = self._open, None
        return await tapped.__aexit__(*exc_info) if tapped is not None else None

    def _connected(self) -> Transport:
        if isinstance(self._target, str):
            return streamable_http_client(self._target)
        if isinstance(self._target, StdioServerParameters):
            return stdio_client(self._target)
        return self._target

    def recording(self, *, redact: Collection[str] = ()) -> Recording:
        """What was said so far.

        Raises:
            Unrecordable: It cannot be told what belongs to what.
        """
        heard = [paired(messages) for messages in self._conversations if messages]
        protocols = {one.protocol for one in heard if one.protocol}
        if len(protocols) > 1:
            raise Unrecordable(f"a recording is of one protocol, these were {' and '.join(sorted(protocols))}")
        if not protocols:
            raise Unrecordable("nothing was said: connect a client to what record() gives, Client(recorded)")
        recording = Recording(
            roundtripRecording=1,
            protocol=protocols.pop(),
            redacted=sorted(redact),
            conversation=[part for one in heard for part in one.parts],
        )
        return recording.redact()


@asynccontextmanager
async def record(
    target: MCPServer[Any] | Server[Any] | StdioServerParameters | Transport | str,
    path: str | PathLike[str],
    *,
    redact: Iterable[str] = (),
) -> AsyncGenerator[Recorded]:
    """Write down what a client and a server say to each other, so that `replay` can play the server.

    A recording holds what went over the wire, tokens and answers included. What a server signs without encrypting can
    be read in its tokens, also where `redact` has taken it out elsewhere. Nothing is written if the block ends with an
    exception.

    Args:
        target: A server object (which is served on a port of this machine meanwhile), a URL, the command of a server
            that serves stdio, or a transport.
        path: The file to write, as JSON. Its directory is made if need be.
        redact: Fields whose values are not written, by their names or the ends of their paths (`card`,
            `arguments.name`). A placeholder of the same type stands for each, and replay takes any value for it: with
            `requestState` it does not check that tokens are echoed.

    Raises:
        ValueError: A field cannot be redacted by its mere name.
        Unrecordable: The conversation cannot be written down: nothing was said, or several calls were open when the
            server asked on the open connection, which does not tell for which.

    Example:
        ```python
        async with record(server, "recordings/booking.json") as recorded:
            async with Client(recorded, elicitation_callback=answer) as client:
                await client.call_tool("book", {"film": "Solaris"})
        ```
    """
    names = frozenset([redact] if isinstance(redact, str) else redact)
    if names & _STRUCTURE:
        raise ValueError(
            f"{', '.join(sorted(names & _STRUCTURE))}: the protocol has fields of that name as well, which replay "
            "needs. Redact by the end of a path, as in redact=['arguments.name', 'content.name']."
        )
    stack = AsyncExitStack()
    try:
        reachable = (
            await stack.enter_async_context(served(target)) if isinstance(target, MCPServer | Server) else target
        )
        recorded = Recorded(reachable)
        yield recorded
    finally:
        # Told of an exception, the server's task group would put it into a group.
        await stack.aclose()
    recorded.recording(redact=names).write(Path(path))
