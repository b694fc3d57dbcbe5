"""A tap on a client's transport, which records messages and may change outgoing ones."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import BaseModel

from roundtrip.testing.conversations import Message

__all__ = ["Json", "Tap"]

Json = dict[str, Any]


class Tap:
    """A transport that keeps every message in `messages`, reports it, and may change outgoing ones."""

    def __init__(
        self,
        transport: AbstractAsyncContextManager[Any],
        change: Callable[[Json], Json] | None = None,
        *,
        keep: list[Message] | None = None,
        heard: Callable[[Message], None] = lambda message: None,
    ) -> None:
        self._transport = transport
        self._change = change
        self._heard = heard
        self.messages: list[Message] = keep if keep is not None else []

    async def __aenter__(self) -> tuple[Any, Any]:
        read, write = await self._transport.__aenter__()
        return _TappedReceiver(read, self), _TappedSender(write, self)

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        return await self._transport.__aexit__(*exc_info)

    def incoming(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        """Keep a message of the server, and return it."""
        if isinstance(message, SessionMessage):
            self._keep(("server", as_json(message.message)))
        return message

    def outgoing(self, message: SessionMessage) -> SessionMessage:
        """Change a message of the client, if a change is given, and keep it."""
        sent = as_json(message.message)
        if self._change is not None:
            sent = self._change(sent)
            message = replace(message, message=jsonrpc_message_adapter.validate_python(sent))
        self._keep(("client", sent))
        return message

    def _keep(self, message: Message) -> None:
        self.messages.append(message)
        self._heard(message)


def as_json(message: BaseModel) -> Json:
    """Return a message exactly as the transport writes it."""
    return message.model_dump(mode="json", by_alias=True, exclude_none=True)


class _Tapped:
    """One of a transport's two streams, behind a tap."""

    def __init__(self, stream: Any, tap: Tap) -> None:
        self._stream = stream
        self._tap = tap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        return await self._stream.__aexit__(*exc_info)


class _TappedReceiver(_Tapped):
    async def receive(self) -> SessionMessage | Exception:
        return self._tap.incoming(await self._stream.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._tap.incoming(await self._stream.__anext__())


class _TappedSender(_Tapped):
    async def send(self, message: SessionMessage) -> None:
        await self._stream.send(self._tap.outgoing(message))
