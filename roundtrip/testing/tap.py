"""A tap that reports each message on a client's transport."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

from mcp.shared.message import SessionMessage

from roundtrip.testing.conversations import Message

OnMessage = Callable[[Message], None]


@asynccontextmanager
async def tapped(transport: AbstractAsyncContextManager[Any], on_message: OnMessage) -> AsyncGenerator[tuple[Any, Any]]:
    """Open a transport, and report each message as the JSON data that is sent."""
    async with transport as (read, write):
        yield _TappedReceiver(read, on_message), _TappedSender(write, on_message)


class _TappedStream:
    """One direction of a transport, with a function that receives each message."""

    def __init__(self, stream: Any, on_message: OnMessage) -> None:
        self._stream = stream
        self._on_message = on_message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        return await self._stream.__aexit__(*exc_info)


class _TappedReceiver(_TappedStream):
    async def receive(self) -> SessionMessage | Exception:
        return self._report(await self._stream.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._report(await self._stream.__anext__())

    def _report(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(message, SessionMessage):
            self._on_message(("server", _as_json(message)))
        return message


class _TappedSender(_TappedStream):
    async def send(self, message: SessionMessage) -> None:
        self._on_message(("client", _as_json(message)))
        await self._stream.send(message)


def _as_json(message: SessionMessage) -> dict[str, Any]:
    return message.message.model_dump(mode="json", by_alias=True, exclude_none=True)
