"""Desk where a server's tool calls arrive: features serve a client's call around its leg, workers serve stored calls.

`roundtrip.Server` and servers of other classes are hosts of this desk. None of them knows which features serve calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mcp.server.context import ServerRequestContext
from mcp_types import SERVER_INFO_META_KEY

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server as LowLevelServer
    from mcp_types import ToolAnnotations
    from starlette.requests import Request
    from starlette.responses import Response

    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.requests import Incoming, RequestRecord
    from roundtrip.legs.runner import LegRunner, ServedEnd

PageHandler = Callable[["Request"], Awaitable["Response"]]
Proceed = Callable[[], Awaitable["ServedEnd | dict[str, Any]"]]
"""Serves a call without the features outside of it: returns the end of its leg, or the reply to its client."""


@dataclass(slots=True, eq=False, repr=False)
class ClientCall:
    """Request of a client that begins or resumes a call of a tool."""

    name: str
    """The tool's name, as the client knows it: servers of other classes may rename tools."""
    record: RequestRecord
    find: Callable[[], AskingFunction]
    """Returns the tool's function; raises an error of the server if there is no such tool."""


class DeskFeature(Protocol):
    """Feature that serves calls of clients around their legs."""

    async def serve(self, call: ClientCall, proceed: Proceed) -> ServedEnd | dict[str, Any]:
        """Serve one request of a call: by `proceed`, or in place of it.

        Raises:
            MCPError: The client gets an error of the protocol.
        """
        ...


@dataclass(eq=False, repr=False)
class CallDesk:
    """The features that serve the calls of one server's clients."""

    features: list[DeskFeature] = field(default_factory=list[DeskFeature])
    """The features, the outermost first."""
    untraced: set[AskingFunction] = field(default_factory=set["AskingFunction"])
    """Functions whose calls tracers do not see."""

    async def serve(self, call: ClientCall, run: Proceed) -> ServedEnd | dict[str, Any]:
        """Serve one request of a client's call; `run` serves its leg."""
        for feature in reversed(self.features):
            run = partial(feature.serve, call, run)
        return await run()


class HostServer(Protocol):
    """Server whose calls arrive at the desk."""

    @property
    def has_own_tool_handler(self) -> bool:
        """Return True if the SDK's handler serves calls of tools."""
        ...

    def custom_route(
        self, path: str, methods: list[str], *, include_in_schema: bool
    ) -> Callable[[PageHandler], object]:
        """Add a page beside MCP."""
        ...

    def add_tool(
        self,
        fn: Callable[..., Any],
        *,
        name: str,
        title: str,
        description: str,
        annotations: ToolAnnotations,
        structured_output: bool,
    ) -> None:
        """Register a tool that asks."""
        ...


@dataclass(eq=False, repr=False)
class ToolHost(ABC):
    """The tools of one server, as features of calls need them."""

    server: HostServer
    low_level: LowLevelServer[Any]
    """The SDK's low-level server inside of it."""
    legs: LegRunner
    """Serves the legs of their functions."""
    desk: CallDesk

    @abstractmethod
    def find(self, name: str, version: str | None) -> AskingFunction:
        """Return the function of a tool, hidden or not.

        Raises:
            Exception: An error of the server: there is no such tool.
        """

    @abstractmethod
    def has_tool(self, name: str, version: str | None) -> bool:
        """Return True if a stored call of this tool can continue here."""

    def is_gated(self, name: str, version: str | None) -> bool:
        """Return True if each leg of a call needs a request of its client."""
        return False

    @abstractmethod
    async def is_visible(self, name: str, version: str | None, request: ServerRequestContext[Any, Any]) -> bool:
        """Return True if a request may see a tool, or if there is no such tool here."""

    @abstractmethod
    async def serve_stored(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None
    ) -> ServedEnd:
        """Serve one leg of a stored call, whose failure is a result.

        Raises:
            MCPError: The tool raised an error of the protocol.
        """

    def stamp(self) -> dict[str, Any]:
        """Return the metadata that results have."""
        return {SERVER_INFO_META_KEY: self.low_level.server_info_stamp}
