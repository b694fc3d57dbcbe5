"""FastMCP's names that roundtrip uses. Only this module imports them; a test fails when FastMCP moves a name.

It also re-exports public names (`import Tool as Tool`), so that an unsupported FastMCP version fails at import with a
single message. It uses these private names:

`FastMCP._mcp_server` is the low-level server, on which roundtrip replaces the request-state boundary.
`FastMCP._request_state_security` is the policy that the author passed for that boundary.

`FastMCP._get_additional_http_routes` returns the author's pages, which the testing kit opens.

`LocalProvider.add_tool`, `.add_prompt` and `.add_resource` are public. All decorators and `add_` methods of a server
call them with the author's function, so roundtrip replaces them on the instance. `._components` holds the components
that were registered earlier.

`fastmcp.server.dependencies._is_client_tool_call` tells whether the client itself called the running tool.

`BaseSearchTransform._call_tool_name` is the name of the search's own tool, which runs other tools.

`_WrappedProvider._inner` is the provider of a server that is mounted with a namespace.

`FastMCPProviderTool._server` and `._original_name` locate the mounted server's tool behind an outer server's tool.

`fastmcp.server.mixins.mcp_operations._normalize_call_tool_result` makes the result that goes over the wire. A ledger
stores the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from mcp_types import CallToolResult

try:
    from fastmcp import FastMCP as FastMCP
    from fastmcp.exceptions import DisabledError as DisabledError
    from fastmcp.exceptions import FastMCPError as FastMCPError
    from fastmcp.exceptions import NotFoundError as NotFoundError
    from fastmcp.exceptions import PromptError as PromptError
    from fastmcp.exceptions import ResourceError as ResourceError
    from fastmcp.exceptions import ToolError as ToolError
    from fastmcp.prompts import Prompt as Prompt
    from fastmcp.prompts.function_prompt import FunctionPrompt
    from fastmcp.prompts.function_prompt import PromptMeta as PromptMeta
    from fastmcp.resources import Resource as Resource
    from fastmcp.resources import ResourceTemplate as ResourceTemplate
    from fastmcp.resources.function_resource import FunctionResource
    from fastmcp.resources.function_resource import ResourceMeta as ResourceMeta
    from fastmcp.resources.template import FunctionResourceTemplate
    from fastmcp.server.context import Context as Context
    from fastmcp.server.dependencies import (
        _is_client_tool_call,  # pyright: ignore[reportPrivateUsage]
        fastmcp_request_ctx,
        get_server,
    )
    from fastmcp.server.dependencies import bind_request_context as bind_request_context
    from fastmcp.server.mixins.mcp_operations import _normalize_call_tool_result  # pyright: ignore[reportPrivateUsage]
    from fastmcp.server.providers import LocalProvider as LocalProvider
    from fastmcp.server.providers.fastmcp_provider import FastMCPProvider, FastMCPProviderTool
    from fastmcp.server.providers.wrapped_provider import _WrappedProvider  # pyright: ignore[reportPrivateUsage]
    from fastmcp.server.sessions import UserSession
    from fastmcp.server.transforms import Transform as Transform
    from fastmcp.server.transforms.search.base import BaseSearchTransform
    from fastmcp.tools import Tool as Tool
    from fastmcp.tools.base import ToolResult
    from fastmcp.tools.function_tool import FunctionTool
    from fastmcp.tools.function_tool import ToolMeta as ToolMeta
    from fastmcp.tools.tool_transform import TransformedTool as TransformedTool
    from fastmcp.utilities.types import is_class_member_of_type
    from fastmcp.utilities.versions import VersionSpec as VersionSpec
    from uncalled_for import get_dependency_parameters
except ImportError as error:
    raise ImportError(
        "roundtrip.fastmcp needs FastMCP 4 (pip install 'fastmcp>=4.0.11,<5'); FastMCP is not installed, or has "
        f"another version: {error}"
    ) from error

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server as LowLevelServer
    from mcp.server.request_state import RequestStateSecurity

_MOVED = "FastMCP {version} has moved {name}, which roundtrip.fastmcp uses; install FastMCP 4.2, or a later roundtrip"


FUNCTION_COMPONENTS: Final = (
    (FunctionTool, "run"),
    (TransformedTool, "run"),
    (FunctionPrompt, "render"),
    (FunctionResource, "read"),
    (FunctionResourceTemplate, "read"),
)
"""Component classes that run the author's function, each with the method that runs it."""

LISTS: Final = ("list_tools", "list_prompts", "list_resources", "list_resource_templates")
"""Server methods that list components."""


def low_level_of(mcp: FastMCP[Any]) -> LowLevelServer[Any]:
    """Return the SDK's low-level server inside a FastMCP server."""
    return _private(mcp, "_mcp_server")


def policy_of(mcp: FastMCP[Any]) -> RequestStateSecurity | None:
    """Return the request-state policy that the author passed to a server."""
    return _private(mcp, "_request_state_security")


def components_of(provider: LocalProvider) -> Iterable[Any]:
    """Return a provider's tools, prompts and resources."""
    return list(_private(provider, "_components").values())


def providers_of(mcp: FastMCP[Any]) -> list[LocalProvider]:
    """Return a server's providers that hold functions."""
    return [provider for provider in mcp.providers if isinstance(provider, LocalProvider)]


def mounted_by(provider: object) -> FastMCP[Any] | None:
    """Return the server that a provider mounts, or None if it mounts no server."""
    while isinstance(provider, _WrappedProvider):
        provider = _private(provider, "_inner")
    return provider.server if isinstance(provider, FastMCPProvider) else None


def passes_calls_on(mcp: FastMCP[Any], name: str) -> bool:
    """Return True if this is a search's own tool, which calls the tool named in its arguments."""
    searches = (each for each in mcp.transforms if isinstance(each, BaseSearchTransform))
    return any(_private(each, "_call_tool_name") == name for each in searches)


def routes_of(mcp: FastMCP[Any]) -> list[Any]:
    """Return the author's HTTP pages, which are not part of MCP."""
    return list(_private(mcp, "_get_additional_http_routes")())


def _private(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        raise ImportError(_MOVED.format(version=version("fastmcp"), name=f"{type(owner).__name__}.{name}")) from None


def has_generated_name(mcp: FastMCP[Any]) -> bool:
    """Return True if the author gave the server no name. FastMCP then generates a different name in each process."""
    made = FastMCP.generate_name()
    kind, _, drawn = mcp.name.rpartition("-")
    return kind == made.rpartition("-")[0] and len(mcp.name) == len(made) and set(drawn) <= set("0123456789abcdef")


def is_client_tool_call() -> bool:
    """Return True if the client itself called the tool that is now running."""
    return _is_client_tool_call()


def serving_server() -> FastMCP[Any] | None:
    """Return the server whose component is running, or None."""
    try:
        return get_server()
    except RuntimeError:
        return None


def session_now() -> Any:
    """Return the session of FastMCP's current request, or None outside a request."""
    context = fastmcp_request_ctx.get()
    return context.session if context is not None else None


def injected_parameters(fn: Callable[..., Any], hints: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of parameters that FastMCP fills: its dependencies, contexts and sessions."""
    by_type = (
        name
        for name, hint in hints.items()
        if name != "return" and (is_class_member_of_type(hint, Context) or is_class_member_of_type(hint, UserSession))
    )
    return tuple(dict.fromkeys([*get_dependency_parameters(fn), *by_type]))


async def function_below(tool: Tool) -> object:
    """Return the function behind a tool's transforms and mounts, or None if the function is not in this process."""
    found: Tool | None = tool
    while found is not None:
        if isinstance(found, TransformedTool):
            found = found.parent_tool
        elif isinstance(found, FastMCPProviderTool):
            server, name = _private(found, "_server"), _private(found, "_original_name")
            found = await server.get_tool(name, VersionSpec(eq=found.version) if found.version else None)
        else:
            return getattr(found, "fn", None)
    return None


def kind_and_name_of(component: Any) -> tuple[str, str]:
    """Return a component's kind, and its name or URI."""
    # A component's key has the form `tool:name@version`.
    kind, _, named = str(component.key).partition(":")
    return kind, named.rpartition("@")[0]


def wire_result(tool: Tool, value: Any) -> CallToolResult:
    """Convert a tool's value to the result that goes over the wire, as FastMCP does."""
    return wire_form(tool.convert_result(value))


def wire_form(result: ToolResult) -> CallToolResult:
    """Convert a FastMCP result to the form that goes over the wire."""
    return _normalize_call_tool_result(result.to_mcp_result())
