"""Read requests with httptools, within the limits that h11 has: of what a request may bring beside its body.

httptools keeps the parts of an unfinished header, and passes headers behind the body on; uvicorn keeps every request
that a client sends ahead.
"""

from typing import Any, Final, cast

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from roundtrip.serving.intake import BoundedConnection

__all__ = ["FastConnection"]

_MAX_HEAD_BYTES: Final = 2**16
_MAX_AHEAD: Final = 8
"""Requests that a client may send before the first of them is answered."""


class FastConnection(BoundedConnection, HttpToolsProtocol):
    """Connection whose requests httptools reads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._has_begun = False
        self._has_head = False
        self._surplus = 0
        """Bytes since the end of the last head or the last part of a body."""

    @override
    def is_served(self) -> bool:
        if self.pipeline:
            return True
        if (cycle := cast("RequestResponseCycle | None", self.cycle)) is None or cycle.response_complete:
            return False
        # Otherwise the body of the answered request is still arriving.
        return not (self._has_begun and self._has_head)

    @override
    def is_arriving(self) -> bool:
        # Without a request and without uvicorn's limit for idle connections, something came that begins no request.
        return not self.is_served() and (self._has_begun or self.timeout_keep_alive_task is None)

    @override
    def data_received(self, data: bytes) -> None:
        self._surplus += len(data)
        super().data_received(data)
        if self._surplus > _MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("Request head too large.")

    @override
    def on_message_begin(self) -> None:
        self._has_begun, self._has_head = True, False
        super().on_message_begin()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        # A header behind the body would come after the checks of the others, and past a proxy that sets or removes it.
        if not self._has_head:
            super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= _MAX_AHEAD:
            raise ValueError("too many requests were sent ahead")
        self._has_head, self._surplus = True, 0
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        self._surplus = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._has_begun, self._surplus = False, 0
        super().on_message_complete()
