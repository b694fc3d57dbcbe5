"""Private SDK names that roundtrip needs. Importing this module fails if the installed SDK lacks one of them."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Final, Literal, TypeVar, cast

from mcp.server import MCPServer, _otel, _streamable_http_modern, connection
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.server.mcpserver.prompts import Prompt, PromptManager
from mcp.server.mcpserver.resources import Resource, ResourceManager
from mcp.server.mcpserver.resources.templates import ResourceSecurityError, ResourceTemplate
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import InputRequiredResult, PromptReference
from pydantic import AnyUrl, TypeAdapter
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope

_NEEDED: Final[Mapping[type, str]] = {
    # The SDK looks up prompts and resources in the managers, so hidden items must be missing there. The SDK's handlers
    # log the client's values, but the hooks do not.
    MCPServer: "_prompt_manager _resource_manager _handle_read_resource() _handle_call_tool() _handle_get_prompt() "
    "_lowlevel_server _custom_starlette_routes",
    PromptManager: "_prompts",
    ResourceManager: "_resources _templates",
    # `_output_adapter` reads the TypedDicts that pydantic rejects before Python 3.12.
    FuncMetadata: "_output_adapter()",
    # The connection knows a request's session. In all transports but one, any client can set the session header.
    ServerSession: "_connection",
    # The state of a running lifespan, the task group of a running manager, and the flag that prevents a second run.
    StreamableHTTPSessionManager: "_lifespan_state _task_group _has_started",
}
"""Private methods and instance attributes of SDK classes."""
_FITTING: Final = "install mcp>=2.1.1,<3, or a later version of mcp-roundtrip"

SdkSpans = _otel.OpenTelemetryMiddleware
"""The SDK's span middleware."""

T = TypeVar("T")
_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])

Shelf = Literal["prompt", "resource"]
"""The kind of an item. A template counts as a resource, and is identified by its URI template."""

_LOG_FORMAT: Final = "%(message)s"

Sees = Callable[[Shelf, str], bool]
"""Returns True if clients may see the prompt with this name, or the resource or template with this URI."""


def require_names(needed: Mapping[type, str]) -> None:
    """Raise ImportError if an SDK class lacks a needed method, or its constructor does not use a needed attribute."""
    for owner, names in needed.items():
        made: Any = owner.__init__
        for name in names.split():
            if not (hasattr(owner, name[:-2]) if name.endswith("()") else name in made.__code__.co_names):
                raise ImportError(f"the installed mcp has no {owner.__name__}.{name}, which roundtrip uses; {_FITTING}")


require_names(_NEEDED)


def _for_client(handle: _CallableT) -> _CallableT:
    """Wrap an SDK handler, so that its first lookup of an item counts as the client's lookup; see
    `_serving_client`.
    """

    @functools.wraps(handle)
    async def handle_for_client(server: HookedServer[Any], ctx: Any, params: Any) -> Any:
        with server._serving_client():  # pyright: ignore[reportPrivateUsage]
            return await handle(server, ctx, params)

    return cast("_CallableT", handle_for_client)


def routes_of(server: MCPServer[Any]) -> list[Route]:
    """Return the routes beside MCP that the author added, such as `ElicitUrl` pages."""
    return list(server._custom_starlette_routes)  # pyright: ignore[reportPrivateUsage]


class HookedServer(MCPServer[LifespanResultT]):
    """`MCPServer` with hooks for tool schemas and for the visibility of prompts and resources.

    A subclass overrides the methods that raise `NotImplementedError`.
    """

    def __init__(self, **sdk: Any) -> None:
        super().__init__(**sdk)
        # From now on, the SDK finds only visible prompts and resources, even among those that are registered later.
        self._prompt_manager = _VisiblePrompts(self._prompt_manager, self._is_visible)
        self._resource_manager = _VisibleResources(self._resource_manager, self._is_visible)
        # The SDK reads this schema before any middleware runs, to check `Mcp-Param-*` headers. Before version 2.3, it
        # takes the schema from the tool list.
        self._lowlevel_server.get_tool_input_schema = self._tool_schema

    def _tool_schema(self, name: str) -> dict[str, Any] | None:
        """Return the input schema of a tool that may be called, or None."""
        raise NotImplementedError

    def _serving_client(self) -> AbstractContextManager[None]:
        """Surround the SDK's handler for one request, whose first lookup serves the client."""
        raise NotImplementedError

    def _has_own_tool_handler(self) -> bool:
        """Return True if the SDK's handler serves tool calls, so that only `call_tool` does."""
        entry = self._lowlevel_server.get_request_handler("tools/call")
        return entry is not None and entry.handler == self._handle_call_tool

    def _is_visible(self, kind: Shelf, identifier: str) -> bool:
        """Return True if clients may see a prompt with this name, or a resource or template with this URI.

        Lists and lookups call it for each item, so it must be quick; it returns True for unregistered ones.
        """
        raise NotImplementedError

    async def _completing(self, kind: Shelf, identifier: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Complete an argument for a prompt or template; return None if clients cannot see it."""
        return await ask() if self._is_visible(kind, identifier) else None

    def completion(self):
        """Register the decorated function to complete arguments. It is not called for hidden prompts and templates."""
        register = super().completion()

        def decorate(func: _CallableT) -> _CallableT:
            async def complete(ref: Any, argument: Any, context: Any) -> Any:
                def ask() -> Awaitable[Any]:
                    return func(ref, argument, context)

                if isinstance(ref, PromptReference):
                    return await self._completing("prompt", ref.name, ask)
                return await self._completing("resource", ref.uri, ask)

            register(complete)
            return func

        return decorate

    def _resources_for(self, uri: str) -> Iterator[str]:
        """Yield the registered URIs and URI templates that match a URI, in the order in which they serve it."""
        return self._resource_manager.matching(uri)

    _handle_read_resource = _for_client(MCPServer._handle_read_resource)
    _handle_call_tool = _for_client(MCPServer._handle_call_tool)
    _handle_get_prompt = _for_client(MCPServer._handle_get_prompt)


class _VisiblePrompts(PromptManager):
    """The SDK's prompts, without hidden prompts."""

    def __init__(self, manager: PromptManager, sees: Sees) -> None:
        super().__init__(manager.warn_on_duplicate_prompts)
        self._prompts = manager._prompts
        self._sees = sees

    def get_prompt(self, name: str) -> Prompt | None:
        prompt = super().get_prompt(name)
        return prompt if prompt is not None and self._sees("prompt", name) else None

    def list_prompts(self) -> list[Prompt]:
        return [prompt for prompt in super().list_prompts() if self._sees("prompt", prompt.name)]


class _VisibleResources(ResourceManager):
    """The SDK's resources and templates, without hidden items."""

    def __init__(self, manager: ResourceManager, sees: Sees) -> None:
        super().__init__(manager.warn_on_duplicate_resources)
        self._resources = manager._resources
        self._templates = manager._templates
        self._sees = sees

    async def get_resource(self, uri: AnyUrl | str, context: Context[Any, Any]) -> Resource | InputRequiredResult:
        text = str(uri)
        resource = self._resources.get(text)
        if resource is not None and self._sees("resource", text):
            return resource
        for template in self.list_templates():
            try:
                variables = template.matches(text)
            except ResourceSecurityError as error:
                raise ResourceNotFoundError(f"Unknown resource: {uri}") from error
            if variables is not None:
                return await template.create_resource(text, variables, context=context)
        raise ResourceNotFoundError(f"Unknown resource: {uri}")

    def matching(self, uri: str) -> Iterator[str]:
        if uri in self._resources:
            yield uri
        for template in self._templates.values():
            try:
                matches = template.matches(uri) is not None
            except ResourceSecurityError:
                # The template does not serve the URI, but its error ends the search.
                matches = True
            if matches:
                yield template.uri_template

    def list_resources(self) -> list[Resource]:
        return [resource for resource in super().list_resources() if self._sees("resource", str(resource.uri))]

    def list_templates(self) -> list[ResourceTemplate]:
        return [template for template in super().list_templates() if self._sees("resource", template.uri_template)]


def connection_of(session: ServerSession) -> Connection:
    """Return the connection that a request came over."""
    return session._connection  # pyright: ignore[reportPrivateUsage]


def session_id_of(session: ServerSession) -> str | None:
    """Return the id of a request's streamable HTTP session, if it has one."""
    return session._connection.session_id  # pyright: ignore[reportPrivateUsage]


def output_adapter(metadata: FuncMetadata) -> TypeAdapter[Any]:
    """Return the adapter that validates and writes results, for a tool with an output model."""
    return metadata._output_adapter(metadata.output_model)  # pyright: ignore[reportPrivateUsage]


def is_running(manager: StreamableHTTPSessionManager) -> bool:
    """Return True while the manager's `run()` is active."""
    return manager._task_group is not None  # pyright: ignore[reportPrivateUsage]


def lifespan_state_of(manager: StreamableHTTPSessionManager) -> Any:
    """Return what the server's lifespan yielded."""
    return manager._lifespan_state  # pyright: ignore[reportPrivateUsage]


read_envelope = connection._typed  # pyright: ignore[reportPrivateUsage]
"""Validates a value with which a request describes its client. Returns None if the value is malformed."""
RequestChannel = _streamable_http_modern._SingleExchangeDispatchContext  # pyright: ignore[reportPrivateUsage]
"""The SDK's channel from one request to its client. The server cannot send requests over this channel."""
EVENT_HEADERS = _streamable_http_modern._SSE_HEADERS  # pyright: ignore[reportPrivateUsage]
"""The SDK's headers for a response that is an event stream."""


# The fast lane replaces the SDK module's transport, but keeps the time between its pings.
def seconds_between_pings() -> float:
    """Return the seconds after which a quiet response becomes an event stream. Pings follow at the same interval."""
    return _streamable_http_modern._SSE_PING_INTERVAL  # pyright: ignore[reportPrivateUsage]


def request_with_body(scope: Scope, receive: Receive, body: bytes) -> Request:
    """Return a request whose body has already been read, and can be read again."""
    request = Request(scope, receive)
    # When the author's code reads the body again, it gets this value.
    request._body = body  # pyright: ignore[reportPrivateUsage]
    return request


class RestartingManager(StreamableHTTPSessionManager):
    """The SDK's manager, except that it can run again after it has stopped. Some hosts send a lifespan for each
    request.
    """

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Run until the end of a `with` block."""
        runs_already = self._has_started
        try:
            async with super().run():
                yield
        finally:
            if not runs_already:
                self._has_started = False


def remove_log_handlers() -> bool:
    """Remove the log handlers that the SDK has installed, and keep the author's. Return True if any handler was
    removed.
    """
    root = logging.getLogger()
    handlers = [handler for handler in root.handlers if _is_log_handler(handler)]
    for handler in handlers:
        root.removeHandler(handler)
    return bool(handlers)


def _is_log_handler(handler: logging.Handler) -> bool:
    # With rich, the SDK's handler wraps lines at the terminal's width, and renders tracebacks so slowly that requests
    # wait. Without rich, the SDK's log lines have neither a time nor a level.
    if getattr(handler.formatter, "_fmt", None) != _LOG_FORMAT:
        return False
    if "rich.logging" not in sys.modules:
        return type(handler) is logging.StreamHandler
    return type(handler).__module__ == "rich.logging" and bool(getattr(handler, "rich_tracebacks", False))
