"""Requests over plain ASGI, for testing an application without a server."""

import json
from collections.abc import Mapping
from typing import Any

import anyio
from starlette.types import Message

from roundtrip.testing import Era
from tests.kit.asgi_scopes import scope_of
from tests.kit.wire import EVERYTHING, Json, headers_of, meta_of

__all__ = ["Post", "call_post"]


class Post:
    """Request from an ASGI server. Its client stays until `leave` is set."""

    def __init__(self, body: bytes, headers: Mapping[str, str], *, method: str = "POST") -> None:
        sent = {"host": "127.0.0.1:8000", "content-type": "application/json", **headers}
        pairs = [(name.lower().encode(), value.encode()) for name, value in sent.items()]
        self.scope = scope_of(pairs, verb=method, state={})
        self.unread = [body[:40], body[40:]]
        self.leave = anyio.Event()
        self.sent: list[Message] = []
        self.answering = anyio.Event()

    async def receive(self) -> Message:
        if self.unread:
            body = self.unread.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self.unread)}
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self.answering.set()

    @property
    def content_type(self) -> str:
        return dict(self.sent[0]["headers"])[b"content-type"].decode()

    @property
    def answer(self) -> bytes:
        """Return the sent body."""
        return b"".join(message.get("body", b"") for message in self.sent)


def call_post(
    tool: str, arguments: Json | None = None, *, revision: str = Era.RETRY.value, meta: Json | None = None, **more: Any
) -> Post:
    """Return the request for one leg, with `more` as additional parameters."""
    envelope = meta_of("post", EVERYTHING) if revision == Era.RETRY.value else {}
    params = {"name": tool, "arguments": arguments or {}, **more, "_meta": {**envelope, **(meta or {})}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return Post(json.dumps(message).encode(), headers_of("tools/call", params, revision))
