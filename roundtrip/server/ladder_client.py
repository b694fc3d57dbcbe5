"""Provide the client of a request as the ladder of its server shows it."""

from __future__ import annotations

from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp_types import (
    ClientCapabilities,
    ElicitationCapability,
    FormElicitationCapability,
    UrlElicitationCapability,
)

from roundtrip.engine.ways import Ways
from roundtrip.revisions import FIRST_OF_RETRY_ERA
from roundtrip.server.ladder import Ladder
from roundtrip.server.requests import RequestClient

__all__ = ["PAGE_ELICITATION", "LadderClient", "with_elicitation"]

PAGE_ELICITATION: Final = ElicitationCapability(form=FormElicitationCapability(), url=UrlElicitationCapability())
"""The elicitation of a page."""


class LadderClient(RequestClient):
    """Client whose user can be asked in more ways than by the client itself, or in fewer."""

    __slots__ = ("_ladder", "_ways")

    def __init__(self, request: ServerRequestContext[Any, Any] | None, ladder: Ladder, ways: Ways) -> None:
        super().__init__(request)
        self._ladder = ladder
        self._ways = ways
        if ways.replaces_client:
            # Its questions are returned, whatever the revision of the client.
            self.protocol_version = FIRST_OF_RETRY_ERA

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """Return the declared capabilities, with those of a page, and without forms that the ladder does not use."""
        declared = super().capabilities
        if self._ways.page is not None:
            return with_elicitation(declared, PAGE_ELICITATION)
        elicitation = declared.elicitation if declared is not None else None
        if elicitation is None or self._ladder.shows_forms(declared):
            return declared
        url = elicitation.url
        return with_elicitation(declared, None if url is None else ElicitationCapability(url=url))


def with_elicitation(
    declared: ClientCapabilities | None, elicitation: ElicitationCapability | None
) -> ClientCapabilities:
    """Return the capabilities of a client with another elicitation."""
    return (declared or ClientCapabilities()).model_copy(update={"elicitation": elicitation})
