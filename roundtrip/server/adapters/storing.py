"""Store calls on servers of other classes: for question pages, models that answer, approvals and tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerMiddleware

if TYPE_CHECKING:
    from roundtrip.server.adapters.installation import Installation, InstallOptions
    from roundtrip.server.hosts import CallsOfTools, PageHandler, ToolShelf
    from roundtrip.server.tasks.service import TaskService

__all__ = ["InstalledHost", "install_stored_calls", "service_of", "wants_stored_calls"]

_OPTIONS = ("pages", "ladder", "approvals")


class InstalledHost:
    """A server of another class, as stored calls see it.

    Args:
        installation: The installation on it.
        custom_route: The method of the server that adds a page beside MCP.
        add_tool: Registers a tool that asks.
    """

    has_own_tool_handler = False

    def __init__(
        self,
        installation: Installation[Any],
        *,
        custom_route: Callable[..., Callable[[PageHandler], object]] | None = None,
        add_tool: Callable[..., object] | None = None,
    ) -> None:
        self._installation = installation
        self._custom_route = custom_route
        self._add_tool = add_tool

    @property
    def name(self) -> str:
        """Return its name."""
        return self._installation.name

    @property
    def middleware(self) -> list[ServerMiddleware[Any]]:
        """Return the middlewares of the low-level server."""
        return self._installation.middleware

    @property
    def server_info_stamp(self) -> dict[str, Any]:
        """Return the part of results of 2026-07-28 that describes the server."""
        return self._installation.low_level.server_info_stamp

    def advertise(self, extension: str) -> None:
        """List an extension among the capabilities of the server."""
        self._installation.low_level.extensions[extension] = {}

    def own_lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Return the lifespan of the server, to enter it without a transport."""
        low_level = self._installation.low_level
        return low_level.lifespan(low_level)

    def custom_route(
        self, path: str, methods: list[str], *, include_in_schema: bool
    ) -> Callable[[PageHandler], object]:
        """Add a page beside MCP."""
        if self._custom_route is None:
            raise RuntimeError(f"server {self.name!r} has no pages")
        return self._custom_route(path, methods, include_in_schema=include_in_schema)

    def add_tool(self, fn: Callable[..., Any], **details: Any) -> None:
        """Register a tool that asks."""
        if self._add_tool is None:
            raise RuntimeError(f"server {self.name!r} has no tools of functions")
        self._add_tool(fn, **details)


def wants_stored_calls(options: InstallOptions) -> list[str]:
    """Return the options of `install` that need stored calls."""
    return [name for name in _OPTIONS if options.get(name) is not None]


def install_stored_calls(
    installation: Installation[Any],
    options: InstallOptions,
    *,
    host: InstalledHost,
    calls: CallsOfTools,
    tools: ToolShelf,
    has_auth: bool,
) -> None:
    """Give a server of another class what its options need: pages, a tool that continues calls, and an inbox.

    Raises:
        TypeError: The ladder is not a list of names.
        ValueError: The options contradict each other, or the server does not know its callers.
        InvalidSignature: The ledger cannot store calls.
    """
    from roundtrip.server.stored_calls import StoredCalls  # few servers store calls

    legs, pages, approvals = installation.legs, options.get("pages"), options.get("approvals")

    def service(needed_by: str) -> TaskService:
        return service_of(installation, host, calls, needed_by)

    StoredCalls.install(options.get("ladder"), pages, host, legs, service, tools)
    if approvals is not None:
        from roundtrip.server.inbox_pages import install_inbox

        install_inbox(approvals, pages, host, legs, service("approvals="), has_auth=has_auth)


def service_of(
    installation: Installation[Any], host: InstalledHost, calls: CallsOfTools, needed_by: str
) -> TaskService:
    """Return the service that stores the calls of a server, for an option of its author.

    Raises:
        InvalidSignature: The ledger cannot store calls.
    """
    legs = installation.legs
    if legs.tasks is None:
        from roundtrip.server.tasks.service import TaskService

        legs.tasks = TaskService(host, legs, calls, needed_by)
    return legs.tasks
