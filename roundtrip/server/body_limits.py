"""Refuse requests whose JSON would hold up the event loop while it is parsed.

Parsing takes as long as there are values, and nothing else runs meanwhile: 4 MB of text take 10 ms, of empty lists a
second. So a long request may have long texts, and only so many values.
"""

import logging
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roundtrip.server.limited_logs import LimitedLog

__all__ = ["MAX_JSON_VALUES", "BoundedJson", "has_too_many_values"]

MAX_JSON_VALUES: Final = 50_000
_HARMLESS_BYTES: Final = 2 * MAX_JSON_VALUES
_TOO_LARGE: Final = 413
_TOLD: Final = b"Request body has too many JSON values"

_log = LimitedLog(logging.getLogger("roundtrip"))


def has_too_many_values(body: bytes) -> bool:
    """Return True if JSON has more values than may be parsed at once; text is skipped, not parsed."""
    # A value takes at least a byte, and one that separates it from the next.
    if len(body) <= _HARMLESS_BYTES or _values_in(body) <= MAX_JSON_VALUES:
        return False
    # What separates values may stand in texts, too.
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 2 * MAX_JSON_VALUES:
        return True
    return _values_in(b"".join(plain.split(b'"')[::2])) > MAX_JSON_VALUES


def _values_in(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


class BoundedJson:
    """ASGI application around one that is handed a request's body in one piece."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        whole = await receive()
        if has_too_many_values(whole.get("body", b"")):
            _log.warning("refused a request with more than %d JSON values", MAX_JSON_VALUES)
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(_TOLD))]
            await send({"type": "http.response.start", "status": _TOO_LARGE, "headers": headers})
            await send({"type": "http.response.body", "body": _TOLD})
            return

        kept: list[Message] = [whole]

        async def replay() -> Message:
            return kept.pop() if kept else await receive()

        await self._app(scope, replay, send)
