"""The client of a request as the runtime asks it: a thin view of the SDK's request context."""

from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ClientCapabilities, InputRequest, InputResponse
from pydantic import BaseModel

__all__ = ["RequestClient"]


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

    async def send(self, request: InputRequest, result_type: type[BaseModel]) -> InputResponse:
        """Put one question over the connection of the request itself."""
        if self._request is None:
            raise RuntimeError("there is no client to ask")
        metadata = ServerMessageMetadata(related_request_id=self._request.request_id)
        return cast("InputResponse", await self._request.session.send_request(request, result_type, metadata=metadata))

    async def tell_done(self, elicitation_id: str) -> None:
        """Notify a live client that its user is done with a page."""
        if self._request is not None and self._request.session.can_send_request:
            await self._request.session.send_elicit_complete(elicitation_id, self._request.request_id)
