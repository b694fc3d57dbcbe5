"""The ways by which a function that asks can come to the clients of a FastMCP server.

`python -m tests.interaction.adapters.arrivals` tries each way, and prints what came of it.
"""

import functools
import inspect
import itertools
import logging
import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import anyio
import fastmcp
import httpx2
from fastmcp import Client, FastMCP
from fastmcp.client.elicitation import ElicitResult
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.server import create_proxy
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from fastmcp.server.providers import FileSystemProvider, LocalProvider, Provider
from fastmcp.server.providers.aggregate import AggregateProvider
from fastmcp.server.providers.fastmcp_provider import FastMCPProvider
from fastmcp.server.providers.openapi import OpenAPIProvider
from fastmcp.server.transforms import PromptsAsTools, ResourcesAsTools, ToolTransform, Transform, Visibility
from fastmcp.server.transforms.namespace import Namespace
from fastmcp.server.transforms.search import BM25SearchTransform, RegexSearchTransform
from fastmcp.tools import Tool, tool
from fastmcp.tools.tool_transform import ArgTransform, ToolTransformConfig, forward
from mcp.server import MCPServer
from mcp.server.mcpserver.resolve import Resolve as SdkResolve
from starlette.requests import Request
from starlette.responses import PlainTextResponse

import roundtrip
from roundtrip import Elicit, InvalidSignature
from roundtrip.fastmcp import install
from roundtrip.testing.networks.fleet import KEYS

__all__ = ["TRIED", "WAYS", "Sandbox", "ask_count", "confirmed_plain", "filled", "outcome_of", "server"]

RAN: list[Any] = []
Function = Callable[..., Any]


async def ask_count() -> Elicit[int]:
    return Elicit("How many?", int)


async def free(path: str = "a") -> str:
    RAN.append(path)
    return "ran"


@roundtrip.tool(confirm="Delete {path}?")
async def confirmed(path: str = "a") -> str:
    return await free(path)


@roundtrip.tool(confirm="Delete {path}?")
def confirmed_plain(path: str = "a") -> str:
    RAN.append(path)
    return "ran"


async def filled(count: Annotated[int, SdkResolve(ask_count)]) -> str:
    RAN.append(count)
    return "ran"


class Tools(Provider):
    """Provider that makes its tool itself."""

    def __init__(self, tool: Tool) -> None:
        super().__init__()
        self._tool = tool

    async def _list_tools(self) -> Sequence[Tool]:
        return [self._tool]


class More(Transform):
    """Transform that adds a tool."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    async def list_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return [*tools, self._tool]

    async def get_tool(self, name: str, call_next: Any, *, version: Any = None) -> Tool | None:
        return self._tool if name == self._tool.name else await call_next(name, version=version)


class Sandbox:
    """Sandbox of a code mode whose code calls the tool `t`."""

    async def run(self, code: str, *, inputs: Any = None, external_functions: Any = None) -> Any:
        return await external_functions["call_tool"]("t", {})


def made(fn: Function, name: str = "t") -> Tool:
    return Tool.from_function(fn, name=name)


def server(fn: Function, *, has_install: bool = False) -> FastMCP[Any]:
    """Return a server that has the tool."""
    other = FastMCP[Any]("other")
    if has_install:
        install(other, keys=KEYS[:1])
    other.tool(fn, name="t")
    return other


def late(mcp: FastMCP[Any], *transforms: Transform, has_install: bool = False, **options: Any) -> FastMCP[Any]:
    """Return an empty server that is mounted already, under transforms of the server that mounts it."""
    child = FastMCP[Any]("child")
    if has_install:
        install(child, keys=KEYS[:1])
    mcp.mount(child, **options)
    for transform in transforms:
        mcp.add_transform(transform)
    return child


def searched(child: FastMCP[Any], search: type[BM25SearchTransform | RegexSearchTransform]) -> FastMCP[Any]:
    """Return a mounted server that has a search of its own."""
    child.add_transform(search())
    return child


def by_files(mcp: FastMCP[Any], fn: Function) -> None:
    with TemporaryDirectory() as folder:
        imports = f"from fastmcp.tools import tool\nfrom tests.interaction.adapters.arrivals import {fn.__name__} as fn"
        Path(folder, "tools.py").write_text(f"{imports}\nt = tool(fn, name='t')")
        mcp.add_provider(FileSystemProvider(folder))


def by_openapi(mcp: FastMCP[Any], fn: Function) -> None:
    async def serve(scope: Any, receive: Any, send: Any) -> None:
        query = dict(Request(scope).query_params)
        found: Any = made(fn).run(query) if fn is filled else fn(**query)
        await PlainTextResponse(str(found if isinstance(found, str) else await found))(scope, receive, send)

    names = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("count", "path")]
    paths = {"/t": {"get": {"operationId": "t", "parameters": names, "responses": {"200": {"description": ""}}}}}
    spec = {"openapi": "3.1.0", "info": {"title": "shop", "version": "1"}, "paths": paths}
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(serve), base_url="http://shop")
    mcp.add_provider(OpenAPIProvider(spec, client))


def by_sdk_server(mcp: FastMCP[Any], fn: Function) -> None:
    other = MCPServer[Any]("other")
    other.add_tool(fn, name="t")
    mcp.mount(create_proxy(Client(other)))


def by_local_provider(mcp: FastMCP[Any], fn: Function) -> None:
    provider = LocalProvider()
    mcp.add_provider(provider)
    provider.tool(fn, name="t")


async def taken(mcp: FastMCP[Any], fn: Function) -> None:
    found: Any = await server(fn, has_install=True).get_tool("t")
    mcp.add_provider(Tools(found))


def decorated(fn: Function) -> Function:
    @functools.wraps(fn)
    async def log(**given: Any) -> Any:
        result: Any = fn(**given)
        return result if isinstance(result, str) else await result

    return log


def alias(parent: Tool, **options: Any) -> Tool:
    return Tool.from_tool(parent, name="alias", **options)


async def passing_on(**given: Any) -> Any:
    return await forward(**given)


def hiding(fn: Function) -> Tool:
    name, default = ("count", 666) if fn is filled else ("path", "a")
    return Tool.from_tool(made(fn), name="defaulted", transform_args={name: ArgTransform(hide=True, default=default)})


RENAMED: Final = ToolTransform({"t": ToolTransformConfig(name="alias")})
KEPT: Final = (Visibility(False, match_all=True), Visibility(True, tags={"kept"}))
WAYS: dict[str, Callable[[FastMCP[Any], Function], object]] = {
    "usual": lambda mcp, fn: mcp.tool(fn, name="t"),
    "under a decorator": lambda mcp, fn: mcp.tool(decorated(fn), name="t"),
    "under FastMCP's decorator": lambda mcp, fn: mcp.add_tool(tool("t")(fn)),
    "object": lambda mcp, fn: mcp.add_tool(made(fn)),
    "added alias": lambda mcp, fn: mcp.add_tool(alias(made(fn))),
    "mounted before": lambda mcp, fn: mcp.mount(server(fn)),
    "mounted with install": lambda mcp, fn: mcp.mount(server(fn, has_install=True)),
    "of a constructor": lambda mcp, fn: mcp.mount(FastMCP("child", tools=[tool("t")(fn)])),
    "late in child": lambda mcp, fn: late(mcp).tool(fn, name="t"),
    "late in child with namespace": lambda mcp, fn: late(mcp, namespace="n").tool(fn, name="t"),
    "late in child under a decorator": lambda mcp, fn: late(mcp).tool(decorated(fn), name="t"),
    "late in child, renamed": lambda mcp, fn: late(mcp, tool_names={"t": "alias"}).tool(fn, name="t"),
    "late in child, renamed by a transform": lambda mcp, fn: late(mcp, RENAMED).tool(fn, name="t"),
    "late in child, kept by its tag": lambda mcp, fn: late(mcp, *KEPT).tool(fn, name="t", tags={"kept"}),
    "late in grandchild": lambda mcp, fn: late(late(mcp, namespace="n")).tool(fn, name="t"),
    "late in installed child": lambda mcp, fn: late(mcp, has_install=True).tool(fn, name="t"),
    "late in child of installed child": lambda mcp, fn: late(late(mcp, has_install=True)).tool(fn, name="t"),
    "late object in child": lambda mcp, fn: late(mcp).add_tool(made(fn)),
    "late middleware of child": lambda mcp, fn: late(mcp).add_middleware(ToolInjectionMiddleware([made(fn)])),
    "transform of child": lambda mcp, fn: late(mcp).add_transform(More(made(fn))),
    "provider of child": lambda mcp, fn: late(mcp).add_provider(Tools(made(fn))),
    "prompt as a tool": lambda mcp, fn: late(mcp, PromptsAsTools(mcp)).prompt(fn, name="t"),
    "template as a tool": lambda mcp, fn: late(mcp, ResourcesAsTools(mcp)).resource(
        "files://{count}" if fn is filled else "files://{path}"
    )(fn),
    "behind a search": lambda mcp, fn: late(mcp, BM25SearchTransform()).tool(fn, name="t"),
    "behind a search by pattern": lambda mcp, fn: late(mcp, RegexSearchTransform()).tool(fn, name="t"),
    "behind a search of child": lambda mcp, fn: searched(late(mcp), BM25SearchTransform).tool(fn, name="t"),
    "behind a search of grandchild": lambda mcp, fn: searched(late(late(mcp)), RegexSearchTransform).tool(fn, name="t"),
    "behind a search of installed child": lambda mcp, fn: searched(
        late(mcp, has_install=True), RegexSearchTransform
    ).tool(fn, name="t"),
    "in child of a searched child": lambda mcp, fn: late(searched(late(mcp), BM25SearchTransform)).tool(fn, name="t"),
    "behind a renamed search of child": lambda mcp, fn: searched(
        late(mcp, ToolTransform({"call_tool": ToolTransformConfig(name="renamed")})), BM25SearchTransform
    ).tool(fn, name="t"),
    "behind two searches": lambda mcp, fn: searched(
        late(mcp, RegexSearchTransform(call_tool_name="outer")), BM25SearchTransform
    ).tool(fn, name="t"),
    "behind a code mode": lambda mcp, fn: late(mcp, CodeMode(sandbox_provider=Sandbox())).tool(fn, name="t"),
    "provider": lambda mcp, fn: mcp.add_provider(Tools(made(fn))),
    "provider with namespace": lambda mcp, fn: mcp.add_provider(Tools(made(fn)), namespace="n"),
    "provider of providers": lambda mcp, fn: mcp.add_provider(AggregateProvider([Tools(made(fn))])),
    "provider with transform": lambda mcp, fn: mcp.add_provider(Tools(made(fn)).wrap_transform(Namespace("n"))),
    "provider of a server": lambda mcp, fn: mcp.add_provider(FastMCPProvider(server(fn))),
    "local provider": by_local_provider,
    "partial": lambda mcp, fn: mcp.add_provider(Tools(made(functools.partial(fn)))),
    "copy": lambda mcp, fn: mcp.add_provider(Tools(made(fn).model_copy(update={"name": "alias"}))),
    "alias": lambda mcp, fn: mcp.add_provider(Tools(alias(made(fn)))),
    "alias that forwards": lambda mcp, fn: mcp.add_provider(Tools(alias(made(fn), transform_fn=passing_on))),
    "hidden argument": lambda mcp, fn: mcp.add_provider(Tools(hiding(fn))),
    "transforming function": lambda mcp, fn: mcp.add_provider(Tools(alias(made(lambda: "unused"), transform_fn=fn))),
    "transform": lambda mcp, fn: mcp.add_transform(More(made(fn))),
    "injected": lambda mcp, fn: mcp.add_middleware(ToolInjectionMiddleware([made(fn)])),
    "files": by_files,
    "OpenAPI": by_openapi,
    "proxy": lambda mcp, fn: mcp.mount(create_proxy(server(fn))),
    "proxy of an installed server": lambda mcp, fn: mcp.mount(create_proxy(server(fn, has_install=True))),
    "proxy of a server of the SDK": by_sdk_server,
    "taken from an installed server": taken,
}

PROMISING: Final = {"confirm": confirmed, "confirm of a def": confirmed_plain, "Resolve": filled}
TRIED: Final[dict[str, tuple[Function, bool]]] = {
    "no promise": (free, True),
    **{name: (fn, True) for name, fn in PROMISING.items()},
    **{f"{name} without install": (fn, False) for name, fn in PROMISING.items()},
}
"""Functions, and whether their server has `install`. The first must run, or the way would show nothing."""

HIDDEN: Final = ("t", "n_t", "alias", "defaulted")
CALLING: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "defaulted": lambda given: {},
    "call_tool": lambda given: {"name": "t", "arguments": given},
    "renamed": lambda given: {"name": "t", "arguments": given},
    "outer": lambda given: {"name": "call_tool", "arguments": {"name": "t", "arguments": given}},
    "execute": lambda given: {"code": "call t"},
    "get_prompt": lambda given: {"name": "t", "arguments": {name: str(value) for name, value in given.items()}},
    "read_resource": lambda given: {"uri": f"files://{next(iter(given.values()), 666)}"},
}
"""Arguments of tools that take others than the function's."""


async def outcome_of(way: str, fn: Function, is_installed: bool, *, accepts: bool = False, **options: Any) -> str:
    """Try one way for a client that calls all tools, listed or not, and accepts or declines each question."""
    RAN.clear()
    asked: list[str] = []

    async def answering(message: str, *_: Any) -> ElicitResult[Any]:
        asked.append(message)
        return ElicitResult(action="accept", content={}) if accepts else ElicitResult(action="decline")

    mcp = FastMCP[Any]("outer")
    if is_installed:
        install(mcp, keys=KEYS[:1], **options)
    try:
        arrival: Any = WAYS[way](mcp, fn)
        if inspect.isawaitable(arrival):
            await arrival
    except InvalidSignature:
        return "rejected when registered"
    # The second time a client leaves to the server what it may not fill.
    offered: list[dict[str, Any]] = [{"count": 666}, {}] if fn is filled else [{"path": "a"}]
    texts = ""
    async with Client(mcp, elicitation_handler=answering) as client:
        names = dict.fromkeys([*(tool.name for tool in await client.list_tools()), *HIDDEN])
        for name, given in itertools.product(names, offered):
            arguments = CALLING[name](given) if name in CALLING else given
            texts += str((await client.call_tool(name, arguments, raise_on_error=False)).content)
    if RAN or "ran" in re.findall(r"\w+", texts):
        return "asked, then ran" if asked else "ran"
    return "asked" if asked else "rejected when called" if "roundtrip" in texts else "not found"


async def main() -> None:
    print(f"FastMCP {fastmcp.__version__}, mcp {version('mcp')}")
    print("way", *TRIED, sep=" | ")
    for way in WAYS:
        print(way, *[await outcome_of(way, *tried) for tried in TRIED.values()], sep=" | ", flush=True)


if __name__ == "__main__":
    logging.disable()
    anyio.run(main)
