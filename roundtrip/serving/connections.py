"""Choose the connections of a process: how many it can have, and which library reads their requests."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from roundtrip.serving.intake import SURPLUS_CONNECTIONS, BoundedConnection, Intake

__all__ = ["connections_for", "protocol_for"]

_SPARE_FILES: Final = 256
"""Open files requested beyond the connections: for the ledger, tools and transcripts."""
_LEAST_SPARE_FILES: Final = 32
_LEAST_CONNECTIONS: Final = 8


def connections_for(wanted: int) -> int:
    """Raise the limit of open files as far as needed, and return the possible number of connections."""
    try:
        import resource
    except ImportError:  # not on Windows
        return wanted
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return wanted
    needed = wanted + SURPLUS_CONNECTIONS + _SPARE_FILES
    if allowed < needed:
        allowed = needed if most == resource.RLIM_INFINITY else min(needed, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    spare = min(_SPARE_FILES, max(_LEAST_SPARE_FILES, allowed // 2))
    return min(wanted, max(_LEAST_CONNECTIONS, allowed - SURPLUS_CONNECTIONS - spare))


def protocol_for(intake: Intake) -> Callable[..., asyncio.Protocol]:
    """Return the factory of uvicorn's connections, which read requests with httptools where it is installed."""
    try:
        from roundtrip.serving.fast_connection import FastConnection
    except ImportError:
        return partial(_PlainConnection, intake)
    return partial(FastConnection, intake)


class _PlainConnection(BoundedConnection, H11Protocol):
    """Connection whose requests h11 reads."""

    @override
    def is_served(self) -> bool:
        return self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)

    @override
    def is_arriving(self) -> bool:
        theirs = self.conn.their_state
        return theirs is h11.SEND_BODY or (theirs is h11.IDLE and bool(self.conn.trailing_data[0]))
