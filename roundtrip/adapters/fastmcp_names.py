"""FastMCP's names that roundtrip uses. Only this module imports them.

It also re-exports public names (`import Tool as Tool`), so that an unsupported FastMCP version fails at import with a
single message. New objects of FastMCP show under which private names they keep their parts.

`LocalProvider.add_tool`, `.add_prompt` and `.add_resource` are public. All decorators and `add_` methods of a server
call them with the author's function, so roundtrip replaces them on the instance.

`_is_client_tool_call` is FastMCP's private function that tells a client's call from a call by a tool or a middleware.
In a FastMCP without it, only a tool with the requested name counts as called, so a renamed tool cannot ask.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple, cast

from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import CallToolResult
from starlette.routing import BaseRoute

from roundtrip.sdk import begins_with, name_in, no_page

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
    from fastmcp.server import dependencies
    from fastmcp.server.context import Context as Context
    from fastmcp.server.dependencies import bind_request_context as bind_request_context
    from fastmcp.server.dependencies import fastmcp_request_ctx, get_server
    from fastmcp.server.providers import LocalProvider as LocalProvider
    from fastmcp.server.providers import Provider
    from fastmcp.server.providers.fastmcp_provider import FastMCPProvider, FastMCPProviderTool
    from fastmcp.server.sessions import UserSession
    from fastmcp.server.transforms import Transform as Transform
    from fastmcp.server.transforms.search import RegexSearchTransform
    from fastmcp.server.transforms.search.base import BaseSearchTransform
    from fastmcp.tools import Tool as Tool
    from fastmcp.tools.base import InputRequiredToolResult as InputRequiredToolResult
    from fastmcp.tools.base import ToolResult as ToolResult
    from fastmcp.tools.function_tool import FunctionTool as FunctionTool
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

logger = logging.getLogger("roundtrip")

_is_client_tool_call: Final[Callable[[], bool] | None] = getattr(dependencies, "_is_client_tool_call", None)
if _is_client_tool_call is None:
    logger.warning("this FastMCP does not tell which tool a client called, so renamed and transformed tools cannot ask")

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


class _Names(NamedTuple):
    """The attributes in which FastMCP's objects keep their parts, and the class around a namespaced provider."""

    low_level: str
    policy: str
    components: str
    routes: str
    call_tool: str
    wrapper: type[Any] | None
    inner: str


@cache
def _names() -> _Names:
    """Return the names under which new objects of FastMCP keep known parts.

    The author's own attributes could hold objects of the same types.

    Raises:
        ImportError: FastMCP's objects do not keep such a part.
    """
    policy, search = RequestStateSecurity.ephemeral(), RegexSearchTransform(call_tool_name="call the tool")
    probe, child = FastMCP[Any]("probe", request_state_security=policy), FastMCP[Any]("child")
    probe.custom_route("/", ["GET"])(no_page)
    local = providers_of(probe)[0]
    local.add_tool(Tool.from_function(_no_tool))
    probe.mount(child, namespace="child")
    mounted = probe.providers[-1]
    is_wrapped = not isinstance(mounted, FastMCPProvider)
    return _Names(
        low_level=_name_in(probe, lambda value: isinstance(value, LowLevelServer)),
        policy=_name_in(probe, lambda value: value is policy),
        components=_name_in(local, lambda value: isinstance(value, dict) and value != {}),
        routes=_name_in(probe, lambda value: begins_with(value, BaseRoute)),
        call_tool=_name_in(search, lambda value: value == "call the tool"),
        wrapper=type(mounted) if is_wrapped else None,
        inner=_name_in(mounted, lambda value: isinstance(value, Provider)) if is_wrapped else "",
    )


async def _no_tool() -> None: ...


_name_in = partial(name_in, cure="install FastMCP 4.2, or a later version of mcp-roundtrip")


def low_level_of(mcp: FastMCP[Any]) -> LowLevelServer[Any]:
    """Return the SDK's low-level server inside a FastMCP server."""
    return getattr(mcp, _names().low_level)


def policy_of(mcp: FastMCP[Any]) -> RequestStateSecurity | None:
    """Return the request-state policy that the author passed to a server."""
    return getattr(mcp, _names().policy)


def components_of(provider: LocalProvider) -> Iterable[Any]:
    """Return a provider's tools, prompts and resources."""
    return list(getattr(provider, _names().components).values())


def providers_of(mcp: FastMCP[Any]) -> list[LocalProvider]:
    """Return a server's providers that hold functions."""
    return [provider for provider in mcp.providers if isinstance(provider, LocalProvider)]


def mounted_by(provider: object) -> FastMCP[Any] | None:
    """Return the server that a provider mounts, or None if it mounts no server."""
    names = _names()
    while names.wrapper is not None and isinstance(provider, names.wrapper):
        provider = getattr(provider, names.inner)
    return provider.server if isinstance(provider, FastMCPProvider) else None


def known_tools(mcp: FastMCP[Any]) -> Iterator[Tool]:
    """Yield the tools that a server and its mounted servers hold, without their transforms."""
    for provider in mcp.providers:
        if isinstance(provider, LocalProvider):
            yield from (each for each in components_of(provider) if isinstance(each, Tool))
        elif (mounted := mounted_by(provider)) is not None:
            yield from known_tools(mounted)


def count_other_providers(mcp: FastMCP[Any]) -> int:
    """Return the number of providers whose tools `known_tools` does not yield."""
    mounted = [mounted_by(provider) for provider in mcp.providers if not isinstance(provider, LocalProvider)]
    return sum(1 if each is None else count_other_providers(each) for each in mounted)


def passes_calls_on(mcp: FastMCP[Any], name: str) -> bool:
    """Return True if this tool belongs to a search, and calls another tool that its arguments name."""
    searches = (each for each in mcp.transforms if isinstance(each, BaseSearchTransform))
    return any(getattr(each, _names().call_tool, None) == name for each in searches)


def routes_of(mcp: FastMCP[Any]) -> list[BaseRoute]:
    """Return the author's HTTP pages, which are not part of MCP, also of mounted servers."""
    mounted = (server for provider in mcp.providers if (server := mounted_by(provider)) is not None)
    return [*getattr(mcp, _names().routes), *(route for server in mounted for route in routes_of(server))]


def has_generated_name(mcp: FastMCP[Any]) -> bool:
    """Return True if the author gave the server no name. FastMCP then generates a different name in each process."""
    made = FastMCP.generate_name()
    kind, _, drawn = mcp.name.rpartition("-")
    return kind == made.rpartition("-")[0] and len(mcp.name) == len(made) and set(drawn) <= set("0123456789abcdef")


def is_client_tool_call(*, is_named: bool) -> bool:
    """Return True if the client itself called the running tool.

    Args:
        is_named: True if the request has the tool's own name.
    """
    return is_named if _is_client_tool_call is None else _is_client_tool_call()


def may_be_client_tool_call() -> bool:
    """Return False if another tool or a middleware called the running tool, and FastMCP tells that."""
    return _is_client_tool_call is None or _is_client_tool_call()


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


def runs_own_code(tool: Tool) -> bool:
    """Return True if a transform around the tool runs a function of the author's."""
    while isinstance(tool, TransformedTool):
        if tool.fn is not tool.forwarding_fn:
            return True
        tool = tool.parent_tool
    return False


async def tool_below(tool: Tool) -> Tool | None:
    """Return the tool behind a tool's transforms and mounts, or None if its server no longer has it."""
    return end_of(tool, [mount async for mount in mounts_below(tool)])


def end_of(tool: Tool, mounts: Sequence[tuple[FastMCP[Any], Tool | None]]) -> Tool | None:
    """Return the tool behind a tool's transforms and mounts, given what `mounts_below` yields for it."""
    return _untransformed(mounts[-1][1] if mounts else tool)


async def mounts_below(tool: Tool) -> AsyncIterator[tuple[FastMCP[Any], Tool | None]]:
    """Yield each mounted server to which a tool delegates, outermost first, with the tool that it finds."""
    found = _untransformed(tool)
    while isinstance(found, FastMCPProviderTool):
        # The mounted server, and the tool's name there.
        private: list[object] = list((found.__pydantic_private__ or {}).values())
        server = cast("FastMCP[Any]", next(each for each in private if isinstance(each, FastMCP)))
        name = next(each for each in private if isinstance(each, str))
        inner = await server.get_tool(name, VersionSpec(eq=found.version) if found.version else None)
        yield server, inner
        found = _untransformed(inner)


def calls_mounted_tools(tool: Tool, below: Tool | None) -> bool:
    """Return True if a tool belongs to the search of a mounted server, and calls that server's tools.

    Args:
        tool: The tool as clients see it.
        below: The tool behind its transforms and mounts.
    """
    return isinstance(_untransformed(tool), FastMCPProviderTool) and _is_of_search(below)


async def called_by_search(search: Tool, arguments: Any) -> tuple[Tool, dict[str, Any]]:
    """Return the tool that a mounted server's search calls, and the tool's arguments.

    If they are unknown before the search runs, return the search itself.

    Args:
        search: The search's tool that calls tools, as clients see it.
        arguments: The arguments of the search.
    """
    server: Any = None
    found: Tool | None = search
    given = arguments
    while found is not None and isinstance(given, dict):
        passed = cast("dict[str, Any]", given)
        layers: list[tuple[Any, Tool | None]] = [(server, found), *[mount async for mount in mounts_below(found)]]
        server, last = layers[-1]
        if not _is_of_search(_untransformed(last)):
            return found, passed
        if any(isinstance(each, TransformedTool) for _, each in layers):
            # The transform may have renamed the arguments.
            break
        found, given = await server.get_tool(str(passed.get("name"))), cast("Any", passed.get("arguments") or {})
    return search, arguments


def _is_of_search(tool: Tool | None) -> bool:
    """Return True for a search's tool that calls the tools that its arguments name."""
    return getattr(getattr(tool, "fn", None), "__module__", "") == BaseSearchTransform.__module__


def runs_client_code(tool: Tool | None) -> bool:
    """Return True for the tool of FastMCP's code mode that runs a program, which may call any other tool."""
    fn: Any = getattr(tool, "fn", None)
    where = f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', '')}"
    return where.startswith("fastmcp.experimental.transforms.code_mode.CodeMode.")


def _untransformed(tool: Tool | None) -> Tool | None:
    while isinstance(tool, TransformedTool):
        tool = tool.parent_tool
    return tool


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
    made = result.to_mcp_result()
    if isinstance(made, CallToolResult):
        return made
    content, structured = made if isinstance(made, tuple) else (made, None)
    return CallToolResult(content=content, structured_content=structured)
