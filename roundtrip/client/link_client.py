"""A client that declares links but no forms. The SDK's client cannot do this."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Final, Self

from mcp.client import Client
from mcp.client.session import ClientSession
from mcp_types import ClientCapabilities, ElicitationCapability, UrlElicitationCapability

from roundtrip.sdk import missing_names

_NEEDED: Final = {Client: "_build_session()", ClientSession: "_build_capabilities()"}


class LinkClient(Client):
    """Client that declares only URL mode. The SDK's client always declares forms as well."""

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            RuntimeError: The installed SDK does not let a client leave forms out.
        """
        if missing_names(_NEEDED, without="no client can declare links without forms"):
            raise RuntimeError(f"a client with links only needs another mcp than {version('mcp')}; play another client")
        await super().__aenter__()
        return self

    async def _build_session(self, exit_stack: AsyncExitStack) -> ClientSession:
        session = await super()._build_session(exit_stack)
        build: Callable[[str], ClientCapabilities] = session._build_capabilities  # pyright: ignore[reportPrivateUsage]
        links = ElicitationCapability(url=UrlElicitationCapability())
        declared = {"elicitation": links}
        session._build_capabilities = lambda version: build(version).model_copy(update=declared)  # pyright: ignore[reportPrivateUsage]
        return session
