"""Access to the private parts of the SDK's objects, all in this module.

A new object of the SDK shows under which names it keeps parts of public types. A part that is known by its private name
only makes roundtrip faster or adds one convenience. If the installed SDK lacks one, the log says so once, and
roundtrip works without it; see `docs/stability.md#private-names`.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Any, Final, Literal, TypeVar, cast

import anyio
from mcp.server import MCPServer
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.server.mcpserver.prompts import Prompt, PromptManager
from mcp.server.mcpserver.resources import Resource, ResourceManager
from mcp.server.mcpserver.resources.templates import ResourceSecurityError, ResourceTemplate
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import MessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import InputRequiredResult, ProgressToken, PromptReference, RequestId
from pydantic import AnyUrl, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

logger = logging.getLogger("roundtrip")

_FITTING: Final = "install mcp>=2.1.1,<3, or a later version of mcp-roundtrip"
T = TypeVar("T")
_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])

Shelf = Literal["prompt", "resource"]
"""The kind of an item. A template counts as a resource, and is identified by its URI template."""

_LOG_FORMAT: Final = "%(message)s"

Sees = Callable[[Shelf, str], bool]
"""Returns True if clients may see the prompt with this name, or the resource or template with this URI."""


def missing_names(needed: Mapping[type, str], *, without: str) -> bool:
    """Return True if an SDK class lacks a method, or its constructor sets no attribute with a name. Log it once.

    Args:
        needed: The private names, by their class. A method's name ends with `()`.
        without: What roundtrip lacks without the names.
    """
    for owner, names in needed.items():
        code = getattr(owner.__init__, "__code__", None)
        attributes: tuple[str, ...] = code.co_names if code is not None else ()
        for name in names.split():
            if not (hasattr(owner, name[:-2]) if name.endswith("()") else name in attributes):
                logger.warning("mcp %s has no %s.%s: %s", version("mcp"), owner.__name__, name, without)
                return True
    return False


_HAS_CALL_HANDLER: Final = not missing_names(
    {MCPServer: "_handle_call_tool()"}, without="a call by an extension that intercepts tools may count as the client's"
)
missing_names({StreamableHTTPSessionManager: "_has_started"}, without="a stopped application cannot start again")
missing_names({FuncMetadata: "_output_adapter()"}, without="results of typing.TypedDict need Python 3.12")
missing_names({ResourceManager: "_resources"}, without="each read looks through all resources")


def name_in(owner: object, is_part: Callable[[object], bool], *, cure: str = _FITTING) -> str:
    """Return the name of the attribute in which a new object keeps a part.

    Raises:
        ImportError: The object keeps no such part.
    """
    for name, value in vars(owner).items():
        if is_part(value):
            return name
    raise ImportError(f"roundtrip needs a part that this {type(owner).__name__} does not keep; {cure}")


def begins_with(value: object, kind: type[Any]) -> bool:
    """Return True for a list whose first item has a type."""
    return isinstance(value, list) and isinstance(next(iter(cast("list[object]", value)), None), kind)


async def no_page(request: Request) -> Response:
    """Serve an empty page. A new object that has it shows where it keeps pages."""
    return Response()


@functools.cache
def _new_server() -> MCPServer[Any]:
    """Return a server with one page. The author's own servers could have more attributes with a part's type."""
    server: MCPServer[Any] = MCPServer("probe")
    server.custom_route("/", ["GET"])(no_page)
    return server


@functools.cache
def part_name(kind: type[Any]) -> str:
    """Return the name of the attribute in which the SDK's servers keep a part. The type is public, unlike the name.

    Raises:
        ImportError: The SDK's servers have no such part.
    """
    return name_in(_new_server(), lambda value: isinstance(value, kind) or begins_with(value, kind))


def low_level_of(server: MCPServer[Any]) -> LowLevelServer[Any]:
    """Return the SDK's low-level server inside a server."""
    return getattr(server, part_name(LowLevelServer))


def routes_of(server: MCPServer[Any]) -> list[BaseRoute]:
    """Return the author's HTTP routes outside MCP, such as `ElicitUrl` pages."""
    return list(getattr(server, part_name(BaseRoute)))


class HookedServer(MCPServer[LifespanResultT]):
    """`MCPServer` with hooks for tool schemas and for the visibility of prompts and resources.

    A subclass overrides the methods that raise `NotImplementedError`.
    """

    def __init__(self, **sdk: Any) -> None:
        super().__init__(**sdk)
        low_level = low_level_of(self)
        # From now on, the SDK finds only visible prompts and resources, even among those that are registered later.
        prompts, resources = part_name(PromptManager), part_name(ResourceManager)
        setattr(self, prompts, _VisiblePrompts(getattr(self, prompts), self._is_visible))
        self.__resources = _VisibleResources(getattr(self, resources), self._is_visible)
        setattr(self, resources, self.__resources)
        # The SDK reads this schema before any middleware runs, to check `Mcp-Param-*` headers. Before version 2.3, it
        # takes the schema from the tool list.
        low_level.get_tool_input_schema = self._tool_schema
        self._tool_handler = None
        for method in ("prompts/get", "resources/read", "tools/call"):
            entry = low_level.get_request_handler(method)
            if entry is None:
                continue
            # An extension intercepts tool calls before they reach the SDK's handler.
            is_intercepted = getattr(entry.handler, "__self__", None) is not self
            handler = entry.handler
            if handler != self._handle_call_tool and not (is_intercepted and _HAS_CALL_HANDLER):
                handler = functools.partial(self.__handle, handler)
                low_level.add_request_handler(method, entry.params_type, handler)
            self._tool_handler = None if is_intercepted else handler

    def _tool_schema(self, name: str) -> dict[str, Any] | None:
        """Return a tool's input schema for the SDK's header check, or None to skip the check."""
        raise NotImplementedError

    def _serving_client(self) -> AbstractContextManager[None]:
        """Return a context manager for the SDK's handler. In it, the first lookup of an item counts as the client's."""
        raise NotImplementedError

    async def __handle(self, handle: Callable[..., Awaitable[Any]], ctx: Any, params: Any) -> Any:
        """Call an SDK handler. Its first lookup of an item counts as the client's lookup; see `_serving_client`."""
        with self._serving_client():
            return await handle(ctx, params)

    async def _handle_call_tool(self, ctx: Any, params: Any) -> Any:
        # The SDK's method of this name. The SDK's extensions intercept tool calls before this method runs.
        return await self.__handle(super()._handle_call_tool, ctx, params)

    def _has_own_tool_handler(self) -> bool:
        """Return True if the SDK's own handler, which uses `call_tool`, is registered for tool calls."""
        entry = low_level_of(self).get_request_handler("tools/call")
        return entry is not None and entry.handler == self._tool_handler

    def _is_visible(self, kind: Shelf, identifier: str) -> bool:
        """Return True if clients may see a prompt with this name, or a resource or template with this URI.

        Lists and lookups call this method for each item, so it must be fast. It returns True for unregistered items.
        """
        raise NotImplementedError

    async def _completing(self, kind: Shelf, identifier: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Complete an argument of a prompt or template; return None if clients cannot see that item."""
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
        """Yield the registered URIs and URI templates that match a URI, in lookup order."""
        return self.__resources.matching(uri)


class _VisiblePrompts(PromptManager):
    """The SDK's prompts, without hidden prompts."""

    def __init__(self, manager: PromptManager, sees: Sees) -> None:
        vars(self).update(vars(manager))
        self._sees = sees

    def get_prompt(self, name: str) -> Prompt | None:
        prompt = super().get_prompt(name)
        return prompt if prompt is not None and self._shows(prompt) else None

    def list_prompts(self) -> list[Prompt]:
        return [prompt for prompt in super().list_prompts() if self._shows(prompt)]

    def _shows(self, prompt: Prompt) -> bool:
        # Unregistered prompts count as visible, so a hidden prompt would be seen while another thread removes it.
        return self._sees("prompt", prompt.name) and super().get_prompt(prompt.name) is prompt


class _VisibleResources(ResourceManager):
    """The SDK's resources and templates, without hidden items."""

    def __init__(self, manager: ResourceManager, sees: Sees) -> None:
        vars(self).update(vars(manager))
        self._sees = sees

    async def get_resource(self, uri: AnyUrl | str, context: Context[Any, Any]) -> Resource | InputRequiredResult:
        text = str(uri)
        resource = self._by_uri().get(text)
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
        if uri in self._by_uri():
            yield uri
        for template in super().list_templates():
            try:
                matches = template.matches(uri) is not None
            except ResourceSecurityError:
                # The template does not serve the URI, but its error ends the search.
                matches = True
            if matches:
                yield template.uri_template

    def _by_uri(self) -> Mapping[str, Resource]:
        known = cast("dict[str, Resource] | None", vars(self).get("_resources"))
        return known if known is not None else {str(each.uri): each for each in super().list_resources()}

    def list_resources(self) -> list[Resource]:
        return [resource for resource in super().list_resources() if self._sees("resource", str(resource.uri))]

    def list_templates(self) -> list[ResourceTemplate]:
        return [template for template in super().list_templates() if self._sees("resource", template.uri_template)]


def connection_of(session: ServerSession) -> Connection:
    """Return the connection that a request came over."""
    # Only the connection knows a request's session. In all transports but one, any client can set the session header.
    connection = vars(session).get("_connection")
    return connection or next(value for value in vars(session).values() if isinstance(value, Connection))


def session_id_of(session: ServerSession) -> str | None:
    """Return the id of a request's streamable HTTP session, if it has one."""
    return connection_of(session).session_id


def output_adapter(metadata: FuncMetadata) -> TypeAdapter[Any]:
    """Return the adapter that validates and writes results, for a tool with an output model."""
    # The SDK's adapter also reads the TypedDicts that pydantic rejects before Python 3.12.
    return getattr(metadata, "_output_adapter", TypeAdapter)(metadata.output_model)


class RequestChannel:
    """Channel from one request to its client. The server cannot send requests over this channel."""

    can_send_request = False
    request_id: RequestId | None = None
    message_metadata: MessageMetadata = None
    progress_token: ProgressToken | None = None
    transport: TransportContext

    @property
    def cancel_requested(self) -> anyio.Event:
        """Return an event that is never set: 2026-07-28 clients cancel by disconnecting."""
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send no request.

        Raises:
            NoBackChannelError: Always.
        """
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification, if the response can carry it."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the client asked for it."""


class RestartingManager(StreamableHTTPSessionManager):
    """The SDK's manager, except that it can run again after it has stopped. Some hosts send a lifespan for each
    request.
    """

    is_running = False
    """True while `run()` is active."""
    _is_claimed = False

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Run until the end of a `with` block."""
        is_second, self._is_claimed = self._is_claimed, True
        try:
            async with super().run():
                self.is_running = True
                try:
                    yield
                finally:
                    # No request may begin while the server's lifespan ends.
                    self.is_running = False
        finally:
            if not is_second:
                # Reset the SDK's own flag, so that its manager can run again.
                self._is_claimed = self._has_started = False


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
