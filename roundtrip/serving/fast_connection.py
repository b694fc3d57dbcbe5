"""HTTP connections that parse requests with httptools, one at a time, and within limits like those of h11.

httptools itself would parse all received data and keep incomplete headers. httptools also accepts headers after a body
(trailers), and ignores a request's body if the request offers a protocol upgrade.
"""

from typing import Any, Final, cast

from httptools import HttpRequestParser
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from roundtrip.serving.connection_limit import BoundedConnection, ConnectionLimit
from roundtrip.serving.plain_connection import PlainConnection

_MAX_HEAD_BYTES: Final = 2**16
_MAX_HEADERS: Final = 256
_FRAMING: Final = 16
"""Maximum bytes of chunk framing per body byte."""


class FastConnection(BoundedConnection, HttpToolsProtocol):
    """Connection that parses requests with httptools.

    Data that arrives between a request and its response is dropped. After the response, the connection is closed.
    """

    def __init__(self, connection_limit: ConnectionLimit, *args: Any, **kwargs: Any) -> None:
        super().__init__(connection_limit, *args, **kwargs)
        self._arguments = (connection_limit, *args), kwargs
        self._has_begun = False
        self._has_head = False
        self._is_dropping = False
        """True if further data is dropped."""
        self._surplus = 0
        """The number of request bytes beyond the body and its framing allowance."""
        self._is_at_start = False
        """True while the parser is at a position where a new request should begin."""
        self._head: bytes | None = None
        """The head received so far. None if the request did not begin at the start of the received data."""
        self._has_upgrade_offer = False
        """True if the client offers a protocol upgrade."""

    @override
    def is_served(self) -> bool:
        # A request is not being served yet if its head has arrived and its body is incomplete.
        return self._is_unanswered() and not (self._has_begun and self._has_head)

    @override
    def is_arriving(self) -> bool:
        # If there is no request and uvicorn's idle timer is not running, the client has sent data that does not begin a
        # request.
        return not self.is_served() and (self._has_begun or self.timeout_keep_alive_task is None)

    def _is_unanswered(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    @override
    def data_received(self, data: bytes) -> None:
        if self.is_served():
            self._drop_rest()
        if self._is_dropping:
            return
        self._surplus += len(data)
        self._is_at_start = not self._has_begun
        if self._is_at_start:
            self._head = data
        elif self._head is not None:
            self._head += data
        super().data_received(data)
        if self._has_upgrade_offer:
            self._hand_over()
        elif self._surplus > _MAX_HEAD_BYTES and not self._is_dropping and not self.transport.is_closing():
            self.send_400_response("Too much data outside the body.")

    @override
    def on_message_begin(self) -> None:
        if self._is_unanswered():
            self._drop_rest()
        if self._is_dropping:
            return
        if not self._is_at_start:
            self._head = None
        self._is_at_start, self._has_begun, self._has_head = False, True, False
        super().on_message_begin()

    @override
    def on_url(self, url: bytes) -> None:
        if not self._is_dropping:
            super().on_url(url)

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        # A trailer arrives after the headers were checked, so it could bypass a proxy that sets or removes the header.
        if self._is_dropping or self._has_head:
            return
        if len(self.headers) >= _MAX_HEADERS:
            raise ValueError("too many headers")
        super().on_header(name, value.rstrip(b" \t"))

    @override
    def on_headers_complete(self) -> None:
        if self._is_dropping:
            return
        parser = cast("HttpRequestParser", self.parser)
        version = parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if version not in ("1.0", "1.1") or hosts > 1 or (version == "1.1" and hosts == 0):
            raise ValueError("not an HTTP/1.1 request")
        if parser.should_upgrade():
            self._has_upgrade_offer = True
            return
        self._has_head, self._surplus, self._head = True, 0, None
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        if self._is_dropping or self._has_upgrade_offer:
            return
        self._surplus = max(0, self._surplus - (1 + _FRAMING) * len(body))
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        if self._is_dropping or self._has_upgrade_offer:
            return
        self._has_begun, self._surplus = False, 0
        super().on_message_complete()

    @override
    def send_400_response(self, msg: str) -> None:
        if self.is_served():
            self._drop_rest()
        elif self._is_unanswered() and self.cycle.response_started:
            # The client would read a second response as part of the first.
            self.transport.abort()
        else:
            super().send_400_response(msg)

    @override
    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: h11 handles the request."""

    def _drop_rest(self) -> None:
        """Drop further data; uvicorn closes the connection after the response."""
        self._is_dropping = True
        self.cycle.keep_alive = False

    def _hand_over(self) -> None:
        """Let h11 parse the connection from this request on, because h11 ignores the upgrade offer."""
        if self._head is None:
            self.transport.abort()
            return
        self.leave()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        arguments, keywords = self._arguments
        plain = PlainConnection(*arguments, **keywords)
        self.transport.set_protocol(plain)
        plain.connection_made(self.transport)
        plain.data_received(self._head)
