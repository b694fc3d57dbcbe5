"""Clients that declare only links, or only forms. The SDK's client always declares both."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import ClassVar, Self

from mcp.client import Client
from mcp.client.session import ClientSession
from mcp_types import ClientCapabilities, ElicitationCapability, FormElicitationCapability, UrlElicitationCapability


class LinkClient(Client):
    """Client that declares only URL mode."""

    _declared: ClassVar = ElicitationCapability(url=UrlElicitationCapability())

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            RuntimeError: The installed SDK does not let a client declare only one mode.
        """
        if not (hasattr(Client, "_build_session") and hasattr(ClientSession, "_build_capabilities")):
            raise RuntimeError(
                f"a client with one mode only needs another mcp than {version('mcp')}; play another client"
            )
        await super().__aenter__()
        return self

    async def _build_session(self, exit_stack: AsyncExitStack) -> ClientSession:
        session = await super()._build_session(exit_stack)
        build: Callable[[str], ClientCapabilities] = session._build_capabilities  # pyright: ignore[reportPrivateUsage]
        declared = {"elicitation": self._declared}
        session._build_capabilities = lambda version: build(version).model_copy(update=declared)  # pyright: ignore[reportPrivateUsage]
        return session


class FormClient(LinkClient):
    """Client that declares only forms."""

    _declared: ClassVar = ElicitationCapability(form=FormElicitationCapability())
