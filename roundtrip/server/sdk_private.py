"""The private names of the SDK that roundtrip needs, all in this module; a test fails when the SDK moves one.

`MCPServer._tool_input_schema` is how the SDK finds a tool's schema to check `Mcp-Param-*` headers against, before any
middleware runs. roundtrip keeps its own registry of tools, and without this hook a mismatched header would pass.

`MCPServer._prompt_manager` and `._resource_manager` are where the SDK looks prompts, resources and templates up, and
`PromptManager._prompts`, `ResourceManager._resources` and `._templates` are what is registered there. A hidden one has
to be missing exactly there: where the SDK finds none, it answers as it does for a name that never was, and goes on to
the next template that matches.

`MCPServer._handle_read_resource` logs the URI of what could not be read, and the variables of a template's URI are
values of the client's. `._handle_call_tool` and `._handle_get_prompt` have the names logged of what is not there. The
hooks tell `read_resource`, `call_tool` and `get_prompt` that a client wants it, so that they can log the failure.

`MCPServer._lowlevel_server` says who handles `tools/call`, which an extension or its own author may have changed from
`MCPServer._handle_call_tool`, and how results are stamped with the server's name.

`MCPServer._custom_starlette_routes` are the author's pages. The testing kit opens them; the app of the SDK would do, if
making another one did not replace the session manager of the first.

`mcp.server._otel` has the middleware that the SDK says may be dropped, and no public name for it.

`FuncMetadata._output_adapter` reads the TypedDicts that pydantic refuses before Python 3.12.

`ServerSession._connection` knows the session of a request, and lives as long as what its client keeps open. The header
that names a session is checked on one transport only, and on the others it is whatever a client says.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeVar

from mcp.server._otel import OpenTelemetryMiddleware as SdkSpans
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.server.mcpserver.prompts import Prompt, PromptManager
from mcp.server.mcpserver.resources import Resource, ResourceManager
from mcp.server.mcpserver.resources.templates import ResourceSecurityError, ResourceTemplate
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.server.session import ServerSession
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
)
from pydantic import AnyUrl, TypeAdapter
from starlette.routing import Route

from roundtrip.server.connections import HttpServer

__all__ = ["HookedServer", "SdkSpans", "connection_of", "output_adapter", "session_id_of"]

T = TypeVar("T")
_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])

Sees = Callable[[Literal["prompt", "resource"], str], bool]
"""Whether clients may see a prompt of a name, or a resource or a template of a URI."""


class HookedServer(HttpServer[LifespanResultT]):
    """An `MCPServer` that asks its subclass for a tool's schema, and which prompts and resources clients may see.

    The constructor of the subclass calls `_hide_prompts_and_resources` after the SDK's.
    """

    def tool_schema(self, name: str) -> dict[str, Any] | None:
        """The input schema of a tool that may be called, or None."""
        raise NotImplementedError

    def serving_client(self) -> AbstractContextManager[None]:
        """Surround the SDK's handler of one request, whose first lookup serves the client itself."""
        raise NotImplementedError

    @property
    def has_own_tool_handler(self) -> bool:
        """Whether calls of tools are handled by the SDK's handler, and so by `call_tool` alone."""
        entry = self._lowlevel_server.get_request_handler("tools/call")
        return entry is not None and entry.handler == self._handle_call_tool

    @property
    def own_routes(self) -> list[Route]:
        """The routes beside MCP that its author has added, such as the pages of `ElicitUrl`."""
        return list(self._custom_starlette_routes)

    @property
    def server_info_stamp(self) -> dict[str, Any]:
        """What results of 2026-07-28 say of the server."""
        return self._lowlevel_server.server_info_stamp

    def is_visible(self, kind: Literal["prompt", "resource"], identifier: str) -> bool:
        """Whether clients may see a prompt of this name, or a resource or template of this URI.

        Asked for each with every list and lookup, so it must be quick; True for what was never registered.
        """
        raise NotImplementedError

    async def completing(
        self, kind: Literal["prompt", "resource"], identifier: str, ask: Callable[[], Awaitable[T]]
    ) -> T | None:
        """What completes an argument of a prompt or template; None where clients may not know of it."""
        return await ask() if self.is_visible(kind, identifier) else None

    def completion(self):
        """Register the decorated function to complete arguments; for hidden prompts and templates it is not asked."""
        register = super().completion()

        def decorate(func: _CallableT) -> _CallableT:
            async def complete(ref: Any, argument: Any, context: Any) -> Any:
                def ask() -> Awaitable[Any]:
                    return func(ref, argument, context)

                if isinstance(ref, PromptReference):
                    return await self.completing("prompt", ref.name, ask)
                return await self.completing("resource", ref.uri, ask)

            register(complete)
            return func

        return decorate

    def resources_for(self, uri: str) -> Iterator[str]:
        """The URIs and URI templates of what is registered that matches a URI, in the order in which they serve it."""
        return self._resource_manager.matching(uri)

    def _hide_prompts_and_resources(self) -> None:
        """Have the SDK find only what is visible, of all that is registered already or will be."""
        self._prompt_manager = _VisiblePrompts(self._prompt_manager, self.is_visible)
        self._resource_manager = _VisibleResources(self._resource_manager, self.is_visible)

    async def _handle_read_resource(
        self, ctx: ServerRequestContext[LifespanResultT], params: ReadResourceRequestParams
    ) -> ReadResourceResult | InputRequiredResult:
        with self.serving_client():
            return await super()._handle_read_resource(ctx, params)

    async def _handle_call_tool(
        self, ctx: ServerRequestContext[LifespanResultT], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        with self.serving_client():
            return await super()._handle_call_tool(ctx, params)

    async def _handle_get_prompt(
        self, ctx: ServerRequestContext[LifespanResultT], params: GetPromptRequestParams
    ) -> GetPromptResult | InputRequiredResult:
        with self.serving_client():
            return await super()._handle_get_prompt(ctx, params)

    def _tool_input_schema(self, name: str) -> dict[str, Any] | None:
        return self.tool_schema(name)


class _VisiblePrompts(PromptManager):
    """The SDK's prompts, as if the hidden ones had never been registered."""

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
    """The SDK's resources and templates, as if the hidden ones had never been registered."""

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
                # It would refuse the URI, and so decide what is answered.
                matches = True
            if matches:
                yield template.uri_template

    def list_resources(self) -> list[Resource]:
        return [resource for resource in super().list_resources() if self._sees("resource", str(resource.uri))]

    def list_templates(self) -> list[ResourceTemplate]:
        return [template for template in super().list_templates() if self._sees("resource", template.uri_template)]


def connection_of(session: ServerSession) -> Connection:
    """The connection that a request came over."""
    return session._connection  # pyright: ignore[reportPrivateUsage]


def session_id_of(session: ServerSession) -> str | None:
    """The id of the streamable HTTP session that a request belongs to, if it belongs to one."""
    return session._connection.session_id  # pyright: ignore[reportPrivateUsage]


def output_adapter(metadata: FuncMetadata) -> TypeAdapter[Any]:
    """What validates and writes the results of a tool that has an output model."""
    return metadata._output_adapter(metadata.output_model)  # pyright: ignore[reportPrivateUsage]
