"""Read requests with httptools, one at a time and within limits, as h11 does.

httptools parses everything that has come, keeps the parts of an unfinished header, passes headers behind a body on, and
takes no body from a client that offers another protocol.
"""

from typing import Any, Final, cast

from httptools import HttpRequestParser
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from roundtrip.serving.intake import BoundedConnection, Intake
from roundtrip.serving.plain_connection import PlainConnection

_MAX_HEAD_BYTES: Final = 2**16
_MAX_HEADERS: Final = 256
_FRAMING: Final = 16
"""Bytes of framing for which each byte of a body allows."""


class FastConnection(BoundedConnection, HttpToolsProtocol):
    """Connection whose requests httptools reads.

    What comes behind a request before its answer is dropped, and the answer closes the connection.
    """

    def __init__(self, intake: Intake, *args: Any, **kwargs: Any) -> None:
        super().__init__(intake, *args, **kwargs)
        self._made_of = (intake, *args), kwargs
        self._has_begun = False
        self._has_head = False
        self._drops = False
        """True if the rest of what comes is dropped."""
        self._surplus = 0
        """Bytes of the request beyond those for which its body allows."""
        self._is_fresh = False
        """True at the beginning of what has come, if it begins a request."""
        self._head: bytes | None = None
        """What has come of a head, from its first byte; None if it began behind something else."""
        self._offers = False
        """True if the client offers another protocol."""

    @override
    def is_served(self) -> bool:
        # Otherwise the body of the answered request is still arriving.
        return self._is_unanswered() and not (self._has_begun and self._has_head)

    @override
    def is_arriving(self) -> bool:
        # Without a request and without uvicorn's limit for idle connections, something came that begins no request.
        return not self.is_served() and (self._has_begun or self.timeout_keep_alive_task is None)

    def _is_unanswered(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    @override
    def data_received(self, data: bytes) -> None:
        if self.is_served():
            self._drop_rest()
        if self._drops:
            return
        self._surplus += len(data)
        self._is_fresh = not self._has_begun
        if self._is_fresh:
            self._head = data
        elif self._head is not None:
            self._head += data
        super().data_received(data)
        if self._offers:
            self._hand_over()
        elif self._surplus > _MAX_HEAD_BYTES and not self._drops and not self.transport.is_closing():
            self.send_400_response("Too much beside the body.")

    @override
    def on_message_begin(self) -> None:
        if self._is_unanswered():
            self._drop_rest()
        if self._drops:
            return
        if not self._is_fresh:
            self._head = None
        self._is_fresh, self._has_begun, self._has_head = False, True, False
        super().on_message_begin()

    @override
    def on_url(self, url: bytes) -> None:
        if not self._drops:
            super().on_url(url)

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        # A header behind the body would come after the checks of the others, and past a proxy that sets or removes it.
        if self._drops or self._has_head:
            return
        if len(self.headers) >= _MAX_HEADERS:
            raise ValueError("too many headers")
        super().on_header(name, value.rstrip(b" \t"))

    @override
    def on_headers_complete(self) -> None:
        if self._drops:
            return
        parser = cast("HttpRequestParser", self.parser)
        version = parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if version not in ("1.0", "1.1") or hosts > 1 or (version == "1.1" and hosts == 0):
            raise ValueError("not a request of HTTP/1.1")
        if parser.should_upgrade():
            self._offers = True
            return
        self._has_head, self._surplus, self._head = True, 0, None
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        if self._drops or self._offers:
            return
        self._surplus = max(0, self._surplus - (1 + _FRAMING) * len(body))
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        if self._drops or self._offers:
            return
        self._has_begun, self._surplus = False, 0
        super().on_message_complete()

    @override
    def send_400_response(self, msg: str) -> None:
        if self.is_served():
            self._drop_rest()
        elif self._is_unanswered() and self.cycle.response_started:
            # A second answer would be read as a part of the first.
            self.transport.abort()
        else:
            super().send_400_response(msg)

    @override
    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: h11 reads the request."""

    def _drop_rest(self) -> None:
        """Drop what comes from now on; uvicorn closes the connection with the end of the answer."""
        self._drops = True
        self.cycle.keep_alive = False

    def _hand_over(self) -> None:
        """Let h11 read the connection from this request on: it ignores the offer of another protocol."""
        if self._head is None:
            self.transport.abort()
            return
        self.leave()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        arguments, named = self._made_of
        plain = PlainConnection(*arguments, **named)
        self.transport.set_protocol(plain)
        plain.connection_made(self.transport)
        plain.data_received(self._head)
