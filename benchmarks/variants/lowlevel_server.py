"""A server written by hand on the SDK's low-level class: the cost without a framework."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from starlette.types import ASGIApp

from benchmarks.asgi import PATH
from benchmarks.variants import guard
from benchmarks.variants.variant import Variant
from benchmarks.workloads import KEY, TOOL, Compute, Plain, Words, Workload, computed, result_text

_Body: TypeAlias = Callable[[CallToolRequestParams], Awaitable[str | InputRequiredResult]]

_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def build(workload: Workload) -> ASGIApp | None:
    """Create a low-level server with the workload's tool. It seals request states like the other servers."""
    # Handlers on this class are coroutines.
    if workload.in_threads or (isinstance(workload, Words) and workload.once):
        return None
    bodies = {TOOL: _body(workload)}
    if isinstance(workload, Plain):
        bodies |= {f"other_{number}": bodies[TOOL] for number in range(1, workload.tools)}
    tools = [Tool(name=name, input_schema=_SCHEMA) for name in bodies]

    async def on_list_tools(
        ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def on_call_tool(
        ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        outcome = await bodies[params.name](params)
        if isinstance(outcome, InputRequiredResult):
            return outcome
        return CallToolResult(content=[TextContent(text=outcome)])

    server: Server[Any] = Server(
        "bench",
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
        # Otherwise the transport lists all tools before every call with arguments, to find this schema.
        get_tool_input_schema={tool.name: tool.input_schema for tool in tools}.get,
    )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity(keys=[KEY]), default_audience="bench"))
    return server.streamable_http_app(streamable_http_path=PATH, json_response=True, stateless_http=True)


def _body(workload: Workload) -> _Body:
    match workload:
        case Plain():
            return _greet
        case Compute(count=count, seconds=seconds):
            return _computing(count, seconds)
        case _:
            return _asking(guard.guard_of(workload))


async def _greet(params: CallToolRequestParams) -> str:
    return result_text(_name(params), ["hello"])


def _asking(tool: guard.Guard) -> _Body:
    async def body(params: CallToolRequestParams) -> str | InputRequiredResult:
        return tool(_name(params), params.input_responses, params.request_state)

    return body


def _computing(count: int, seconds: float) -> _Body:
    async def step(number: int) -> str:
        if seconds:
            await asyncio.sleep(seconds)
        return computed(number)

    async def body(params: CallToolRequestParams) -> str:
        if seconds:
            return result_text(_name(params), await asyncio.gather(*(step(number) for number in range(count))))
        # The author knows that these never wait.
        return result_text(_name(params), [await step(number) for number in range(count)])

    return body


def _name(params: CallToolRequestParams) -> str:
    return str((params.arguments or {})["name"])


VARIANT = Variant(
    name="lowlevel",
    title="by hand, low-level",
    imports="from mcp.server.lowlevel import Server",
    note="rounds, checkpoints and answers by hand; answers not pinned to the wording of their questions",
    build=build,
)
