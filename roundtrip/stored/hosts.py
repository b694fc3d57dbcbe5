"""Describe what stored calls need of their server: of `roundtrip.Server`, and of servers of other classes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from mcp.server.context import ServerMiddleware, ServerRequestContext

if TYPE_CHECKING:
    from mcp_types import Tool as WireTool
    from mcp_types import ToolAnnotations
    from starlette.requests import Request
    from starlette.responses import Response

    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.requests import Incoming, RequestRecord
    from roundtrip.legs.runner import ServedEnd
    from roundtrip.tools.registered import RegisteredTool

PageHandler = Callable[["Request"], Awaitable["Response"]]


class LegsOfTools(Protocol):
    """Serves legs of calls for their clients."""

    def function_of(self, name: str, record: RequestRecord) -> AskingFunction:
        """Return the function of the tool that a request has called."""
        ...

    async def serve(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None = None
    ) -> ServedEnd:
        """Serve one leg; its errors are those that the handler of the server expects."""
        ...

    async def serve_caught(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None = None
    ) -> ServedEnd:
        """Serve one leg, whose failure is a result."""
        ...


class CallsOfTools(LegsOfTools, Protocol):
    """Serves legs without a client's request too, and knows the tools."""

    def has_task(self, name: str, version: str | None) -> bool:
        """Return True if a stored call of this tool can go on here."""
        ...

    def is_gated(self, name: str, version: str | None) -> bool:
        """Return True if each leg of a call needs a request of its client."""
        ...

    async def is_visible(self, name: str, version: str | None, request: ServerRequestContext[Any, Any]) -> bool:
        """Return True if a request may see a tool."""
        ...

    def stamp(self) -> dict[str, Any]:
        """Return the metadata that results have."""
        ...


class StoringServer(Protocol):
    """Server that can store calls."""

    @property
    def name(self) -> str:
        """Return its name."""
        ...

    @property
    def middleware(self) -> list[ServerMiddleware[Any]]:
        """Return its middlewares, the outermost first."""
        ...

    def advertise(self, extension: str) -> None:
        """List an extension among its capabilities."""
        ...

    def own_lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Return its lifespan, to enter it without a transport."""
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


class ToolHost(StoringServer, Protocol):
    """Server whose calls of tools `ToolCalls` serves."""

    @property
    def has_own_tool_handler(self) -> bool:
        """Return True if the SDK's handler serves calls of tools."""
        ...

    @property
    def server_info_stamp(self) -> dict[str, Any]:
        """Return the part of results of 2026-07-28 that describes the server."""
        ...


class ToolShelf(Protocol):
    """The tools of a server that ask."""

    relist: Callable[[RegisteredTool, WireTool], WireTool] | None
    """Changes a tool as clients see it."""

    def function_named(self, name: str) -> AskingFunction:
        """Return the function of a tool without a version."""
        ...
