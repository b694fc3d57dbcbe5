"""The client of a request as the runtime asks it: a thin view of the SDK's request context."""

from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ClientCapabilities, InputRequest, InputResponse
from pydantic import BaseModel
from starlette.requests import Request

from roundtrip.safe_text import printable
from roundtrip.server.connections import while_answerable
from roundtrip.server.sdk_private import session_id_of

__all__ = ["NO_EMPTY_ROUNDS", "RequestClient", "announced_name", "client_name"]

NO_EMPTY_ROUNDS: Final[frozenset[str]] = frozenset()
"""Names of clients known not to take a round without questions. The OpenAI Agents SDK (0.24) does not, but calls itself
`mcp`, as every client on the Python SDK does that says nothing else; most of those do take one."""

_MAX_NAME_CHARS: Final = 60


def announced_name(request: ServerRequestContext[Any, Any] | None) -> str | None:
    """Return the name that a client gives itself; on 2026-07-28 each request may say it, in its `_meta`."""
    params = request.session.client_params if request is not None else None
    return params.client_info.name if params is not None else None


def client_name(request: ServerRequestContext[Any, Any]) -> str:
    """Return what the log calls the client of a request: its name, or without a session its `User-Agent`."""
    params = request.session.client_params
    name = params.client_info.name if params is not None else None
    asked: object = request.request
    if not name and isinstance(asked, Request):
        name = cast("Request[Any]", asked).headers.get("user-agent")
    return repr(printable(name[:_MAX_NAME_CHARS])) if name else "a client"


class RequestClient:
    """Asks through the session of one request; without a request there is nobody to ask."""

    __slots__ = ("_request", "protocol_version")

    def __init__(self, request: ServerRequestContext[Any, Any] | None) -> None:
        self._request = request
        self.protocol_version = request.protocol_version if request is not None else None

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """What the client declared, for this request or at its handshake."""
        return self._request.session.client_capabilities if self._request is not None else None

    @property
    def can_be_asked_live(self) -> bool:
        """Whether the session can carry a request to the client."""
        return self._request is not None and self._request.session.can_send_request

    @property
    def in_session(self) -> bool:
        """Whether the request belongs to a session of streamable HTTP."""
        return self._request is not None and session_id_of(self._request.session) is not None

    async def send(self, request: InputRequest, result_type: type[BaseModel]) -> InputResponse:
        """Put one question over the connection of the request itself."""
        asked = self._request
        if asked is None:
            raise RuntimeError("there is no client to ask")
        metadata = ServerMessageMetadata(related_request_id=asked.request_id)
        answer = await while_answerable(
            asked.request, lambda: asked.session.send_request(request, result_type, metadata=metadata)
        )
        return cast("InputResponse", answer)

    async def tell_done(self, elicitation_id: str) -> None:
        """Notify a live client that its user is done with a page."""
        if self._request is not None and self._request.session.can_send_request:
            await self._request.session.send_elicit_complete(elicitation_id, self._request.request_id)
