"""FastMCP as its documentation recommends: `Depends` for values, the guard pattern for questions."""

# FastMCP is a peer, not a dependency. Without it, a type checker knows nothing about this file.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedFunctionDecorator=false

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from fastmcp import Context, FastMCP
from fastmcp.dependencies import Depends
from mcp.server.request_state import RequestStateSecurity
from mcp_types import InputRequiredResult
from starlette.types import ASGIApp

from benchmarks.asgi import PATH
from benchmarks.variants import guard
from benchmarks.variants.signatures import declared, spelled
from benchmarks.variants.variant import Variant
from benchmarks.workloads import KEY, TOOL, Compute, Plain, Words, Workload, computed, result_text

_Function: TypeAlias = Callable[..., Any]


def build(workload: Workload) -> ASGIApp | None:
    """Create a FastMCP server with the workload's tool."""
    if isinstance(workload, Words) and workload.once:
        return None
    server: FastMCP[Any] = FastMCP("bench", request_state_security=RequestStateSecurity(keys=[KEY]))
    if isinstance(workload, Plain):
        for number in range(1, workload.tools):
            server.tool(name=f"other_{number}")(_greeter(workload.in_threads))
    server.tool(name=TOOL)(_tool(workload))
    return server.http_app(path=PATH, json_response=True, stateless_http=True)


def _tool(workload: Workload) -> _Function:
    match workload:
        case Plain():
            return _greeter(workload.in_threads)
        case Compute(count=count, seconds=seconds):
            return _computing(count, seconds, workload.in_threads)
        case _:
            return _asking(guard.guard_of(workload), workload.in_threads)


def _greeter(in_threads: bool) -> _Function:
    def work(name: str) -> str:
        return result_text(name, ["hello"])

    return spelled(declared(work, in_threads=in_threads), name=TOOL, parameters={"name": str}, returns=str)


def _asking(tool: guard.Guard, in_threads: bool) -> _Function:
    def work(name: str, ctx: Context) -> str | InputRequiredResult:
        # This protocol revision rejects `ctx.elicit`: a tool returns its questions and reads the answers itself.
        return tool(name, ctx.input_responses, ctx.request_state)

    parameters = {"name": str, "ctx": Context}
    returns = str | InputRequiredResult
    return spelled(declared(work, in_threads=in_threads), name=TOOL, parameters=parameters, returns=returns)


def _computing(count: int, seconds: float, in_threads: bool) -> _Function:
    def work(name: str, **values: str) -> str:
        return result_text(name, values.values())

    names = [f"value_{number}" for number in range(count)]
    return spelled(
        declared(work, in_threads=in_threads),
        name=TOOL,
        parameters=dict.fromkeys(["name", *names], str),
        returns=str,
        defaults={name: Depends(_step(number, seconds, in_threads)) for number, name in enumerate(names)},
    )


def _step(number: int, seconds: float, in_threads: bool) -> _Function:
    async def step() -> str:
        if seconds:
            await asyncio.sleep(seconds)
        return computed(number)

    def blocking_step() -> str:
        if seconds:
            time.sleep(seconds)
        return computed(number)

    return spelled(blocking_step if in_threads else step, name=f"step_{number}", parameters={}, returns=str)


VARIANT = Variant(
    name="fastmcp",
    title="FastMCP",
    imports="from fastmcp import FastMCP",
    note="values by Depends; questions by hand-written guards, the low-level server's code",
    build=build,
    help=("-m", "fastmcp.cli", "--help"),
)
