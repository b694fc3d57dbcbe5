"""The client of a request as the runtime asks it: a thin view of the SDK's `Context`."""

from typing import Any, cast

from mcp.server.mcpserver import Context
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ClientCapabilities, InputRequest, InputResponse
from pydantic import BaseModel

__all__ = ["ContextClient"]


class ContextClient:
    """Asks through the session of one request."""

    __slots__ = ("_context", "protocol_version")

    def __init__(self, context: Context[Any, Any]) -> None:
        self._context = context
        self.protocol_version = context.protocol_version

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """What the client declared, for this request or at its handshake."""
        return self._context.client_capabilities if self.protocol_version is not None else None

    @property
    def can_be_asked_live(self) -> bool:
        """Whether the session can carry a request to the client."""
        return self.protocol_version is not None and self._context.session.can_send_request

    async def send(self, request: InputRequest, result_type: type[BaseModel]) -> InputResponse:
        """Put one question over the connection of the request itself."""
        answer = await self._context.session.send_request(
            request, result_type, metadata=ServerMessageMetadata(related_request_id=self._context.request_id)
        )
        return cast("InputResponse", answer)
