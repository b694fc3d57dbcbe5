"""The desk where a server's tool calls arrive. Features take part in serving a client's call before and after its leg.
Workers serve stored calls.

`roundtrip.Server` and other server classes host this desk. These classes do not know which features serve their calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
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
"""Function that runs the rest of a call: the inner features and the leg. It returns how the leg ended, or the reply to
the client.
"""


@dataclass(slots=True, eq=False, repr=False)
class ClientCall:
    """A client's request that begins or resumes a tool call."""

    name: str
    """The tool name that the client sees. Other server classes may rename tools."""
    record: RequestRecord
    find: Callable[[], AskingFunction]
    """Returns the tool's function. If there is no such tool, this function raises the server's own error."""


class DeskFeature(Protocol):
    """Feature that takes part in serving clients' calls, before and after each leg."""

    async def serve(self, call: ClientCall, proceed: Proceed) -> ServedEnd | dict[str, Any]:
        """Serve one request: either call `proceed`, or reply without calling it.

        Raises:
            MCPError: The client receives a protocol error.
        """
        ...


@dataclass(eq=False, repr=False)
class CallDesk:
    """The features that serve calls from one server's clients."""

    features: list[DeskFeature] = field(default_factory=list[DeskFeature])
    """The features, outermost first."""
    around: DeskFeature | None = None
    """The feature around all others."""
    untraced: set[AskingFunction] = field(default_factory=set["AskingFunction"])
    """Functions whose calls are hidden from tracers."""

    async def serve(self, call: ClientCall, run: Proceed) -> ServedEnd | dict[str, Any]:
        """Serve one request from a client. `run` serves this request's leg."""
        for feature in reversed(self.features):
            run = partial(feature.serve, call, run)
        return await (run() if self.around is None else self.around.serve(call, run))


class HostServer(Protocol):
    """Server whose calls arrive at the desk."""

    def custom_route(
        self, path: str, methods: list[str], *, include_in_schema: bool
    ) -> Callable[[PageHandler], object]:
        """Add an HTTP page next to the MCP endpoint."""
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
        meta: dict[str, Any] | None = None,
    ) -> None:
        """Register a tool that asks questions."""
        ...


@dataclass(eq=False, repr=False)
class ToolHost(ABC):
    """One server's tools, in the form that call features need."""

    server: HostServer
    low_level: LowLevelServer[Any]
    """The SDK's low-level server inside `server`."""
    legs: LegRunner
    """The runner that serves legs for the tools' functions."""
    desk: CallDesk

    @abstractmethod
    def find(self, name: str, version: str | None) -> AskingFunction:
        """Return a tool's function, even if the tool is hidden.

        Raises:
            Exception: There is no such tool. The server chooses the error.
        """

    @abstractmethod
    def has_tool(self, name: str, version: str | None) -> bool:
        """Return True if a stored call of this tool can continue here."""

    def is_gated(self, name: str, version: str | None) -> bool:
        """Return True if each leg of a call needs a request from the client that made the call."""
        return False

    @abstractmethod
    async def is_visible(self, name: str, version: str | None, request: ServerRequestContext[Any, Any]) -> bool:
        """Return True if a tool is visible to a request, or if the tool does not exist here."""

    @abstractmethod
    async def listed_meta(self, name: str, function: AskingFunction) -> Mapping[str, Any]:
        """Return the `_meta` with which a tool is listed."""

    @abstractmethod
    async def serve_stored(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None
    ) -> ServedEnd:
        """Serve one leg of a stored call. A tool failure is returned as a result.

        Raises:
            MCPError: The tool raised a protocol error.
            ToolMissing: A worker serves the leg, and the server does not have the tool.
        """

    def begin_storing(self) -> None:  # noqa: B027 - most servers need no preparation
        """Prepare to store calls. This is called once, before the first call is stored."""

    def stamp(self) -> dict[str, Any]:
        """Return the metadata that every result has."""
        return {SERVER_INFO_META_KEY: self.low_level.server_info_stamp}
