"""Record a conversation: listen to a connection, and match replies to requests."""

from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

from mcp.client import Transport
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import PROTOCOL_VERSION_META_KEY, ErrorData

from roundtrip.server.adapters.finding import AnyServer, is_server
from roundtrip.testing.conversations import Message
from roundtrip.testing.hosting import served
from roundtrip.testing.recordings.document import (
    PASSING,
    Json,
    Notification,
    RecordedExchange,
    RecordedMessage,
    RecordedQuestion,
    Recording,
    Reply,
)
from roundtrip.testing.tap import Tap

__all__ = ["Pairs", "Recorded", "Unrecordable", "paired", "record"]


_PROTOCOL_FIELDS: Final = frozenset(
    {"action", "content", "method", "mode", "name", "resultType", "role", "type", "uri"}
)
"""Fields of the protocol that replay needs."""


class Recorded(AbstractAsyncContextManager[Any]):
    """A transport that records its messages, for one `Client` after another."""

    def __init__(self, target: Transport | StdioServerParameters | str) -> None:
        self._target = target
        self._conversations: list[list[Message]] = []
        self._open: Tap | None = None

    async def __aenter__(self) -> Any:
        if self._open is not None:
            raise Unrecordable("one client is recorded at a time: close the first one before the next connects")
        tapped = Tap(self._connected())
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
        """Return the recording of all messages so far; raise Unrecordable if they cannot be matched."""
        heard = [paired(messages) for messages in self._conversations if messages]
        protocols = {one.protocol for one in heard if one.protocol}
        if len(protocols) > 1:
            raise Unrecordable(f"a recording has one protocol, these were {' and '.join(sorted(protocols))}")
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
    target: AnyServer | StdioServerParameters | Transport | str,
    path: str | PathLike[str],
    *,
    redact: Iterable[str] = (),
) -> AsyncGenerator[Recorded]:
    """Record the messages between a client and a server, so that `replay` can play the server.

    A recording holds all messages, including tokens and answers. Tokens that are signed but not encrypted are readable,
    including values that `redact` removed elsewhere. If the block ends with an exception, no file is written.

    Args:
        target: A server object (which is served on a local port meanwhile), a URL, the command of a server that serves
            stdio, or a transport.
        path: The JSON file to write. Its directory is created if necessary.
        redact: Fields whose values are not written, by their names or the ends of their paths (`card`,
            `arguments.name`). Each gets a placeholder of the same type, and replay accepts any value for it. With
            `requestState`, replay does not check that the client echoes tokens.

    Raises:
        ValueError: A field cannot be redacted by its name alone.
        Unrecordable: No message was sent, or several calls were open when the server sent a question over the open
            connection, which does not say for which call.

    Example:
        ```python
        async with record(server, "recordings/booking.json") as recorded:
            async with Client(recorded, elicitation_callback=answer) as client:
                await client.call_tool("book", {"film": "Solaris"})
        ```
    """
    names = frozenset([redact] if isinstance(redact, str) else redact)
    if names & _PROTOCOL_FIELDS:
        raise ValueError(
            f"{', '.join(sorted(names & _PROTOCOL_FIELDS))}: the protocol has fields of that name as well, which "
            "replay needs. Redact by the end of a path, as in redact=['arguments.name', 'content.name']."
        )
    stack = AsyncExitStack()
    try:
        reachable = await stack.enter_async_context(served(target)) if is_server(target) else target
        recorded = Recorded(reachable)
        yield recorded
    finally:
        # Given the exception, the server's task group would raise it inside an exception group.
        await stack.aclose()
    recorded.recording(redact=names).write(Path(path))


_ASKING_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})


class Unrecordable(RuntimeError):
    """A conversation that could not be replayed."""


@dataclass(slots=True)
class Pairs:
    """The messages of one connection: requests with their replies, and the messages in between."""

    parts: list[RecordedExchange | Notification] = field(default_factory=list[RecordedExchange | Notification])
    protocol: str = ""
    open: dict[Any, RecordedExchange] = field(default_factory=dict[Any, RecordedExchange])
    asked: dict[Any, RecordedQuestion] = field(default_factory=dict[Any, RecordedQuestion])
    progressing: dict[Any, RecordedExchange] = field(default_factory=dict[Any, RecordedExchange])
    early: list[RecordedQuestion] = field(default_factory=list[RecordedQuestion])
    """Questions that arrived while no request was open: they belong to the next request."""

    def client(self, said: Json) -> None:
        """Add a message of the client."""
        if "method" not in said:
            question = self.asked.pop(said.get("id"), None)
            if question is not None:
                question.answer = _reply(said)
            return
        message, meta = _message(said)
        if "id" in said:
            exchange = RecordedExchange(request=message, meanwhile=[*self.early])
            self.early.clear()
            self.parts.append(exchange)
            self.open[said["id"]] = exchange
            if "progressToken" in meta:
                self.progressing[meta["progressToken"]] = exchange
            self.protocol = self.protocol or str(meta.get(PROTOCOL_VERSION_META_KEY, ""))
        elif message.method == "notifications/cancelled":
            self.open.pop(message.params.get("requestId"), None)
        elif message.method not in PASSING:
            self.parts.append(Notification(notification=message))

    def server(self, said: Json) -> None:
        """Add a message of the server."""
        if "method" not in said:
            exchange = self.open.pop(said.get("id"), None)
            if exchange is not None:
                exchange.response = _reply(said)
                if exchange.request.method == "initialize" and exchange.response.result is not None:
                    self.protocol = str(exchange.response.result.get("protocolVersion", ""))
            return
        message = RecordedMessage(method=said["method"], params=dict(said.get("params") or {}))
        if "id" in said:
            question = RecordedQuestion(question=message)
            self.asked[said["id"]] = question
            self._call_of_question(message).append(question)
        elif message.method != "notifications/cancelled":
            exchange = self._request_of_notification(message)
            message.params.pop("progressToken", None)
            exchange.meanwhile.append(Notification(notification=message))

    def _call_of_question(self, message: RecordedMessage) -> list[Any]:
        calls = [one for one in self.open.values() if one.request.method in _ASKING_METHODS]
        if len(calls) > 1:
            raise Unrecordable(
                f"the server asked {message.method} while {len(calls)} calls were open, and the connection does not "
                f"tell for which: {'; '.join(str(call.request) for call in calls)}. Record one call after the other."
            )
        return calls[0].meanwhile if calls else self.early

    def _request_of_notification(self, message: RecordedMessage) -> RecordedExchange:
        subscription = message.params.get("_meta", {}).get(SUBSCRIPTION_ID_META_KEY)
        if subscription is not None and subscription in self.open:
            return self.open[subscription]
        progressing = self.progressing.get(message.params.get("progressToken"))
        if progressing is not None:
            return progressing
        # The latest request without a reply, else the latest of all.
        exchanges = [*(one for one in self.parts if isinstance(one, RecordedExchange)), *self.open.values()]
        if not exchanges:
            raise Unrecordable("the server spoke before the client did")
        return exchanges[-1]


def paired(messages: Iterable[Message]) -> Pairs:
    """Match the messages of one connection; raise Unrecordable if one belongs to no request, or to one of several."""
    pairs = Pairs()
    for sender, said in messages:
        if sender == "client":
            pairs.client(said)
        else:
            pairs.server(said)
    return pairs


def _message(said: Json) -> tuple[RecordedMessage, Json]:
    """Return a client's message, and its metadata."""
    params = dict(said.get("params") or {})
    meta = params.pop("_meta", None)
    return RecordedMessage(method=said["method"], params=params), meta or {}


def _reply(said: Json) -> Reply:
    if "error" in said:
        return Reply(error=ErrorData.model_validate(said["error"]))
    return Reply(result=said.get("result") or {})
