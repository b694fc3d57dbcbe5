"""HTTP connections that parse requests with h11."""

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from roundtrip.serving.connection_limit import BoundedConnection


class PlainConnection(BoundedConnection, H11Protocol):
    """Connection that parses requests with h11."""

    @override
    def is_served(self) -> bool:
        return self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)

    @override
    def is_arriving(self) -> bool:
        theirs = self.conn.their_state
        return theirs is h11.SEND_BODY or (theirs is h11.IDLE and bool(self.conn.trailing_data[0]))
