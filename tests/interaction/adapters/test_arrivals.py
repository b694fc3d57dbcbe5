"""The ways by which a function that asks can come to the clients of a FastMCP server: it never runs unasked."""

import functools
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, cast

import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.elicitation import ElicitResult
from fastmcp.prompts import Prompt
from fastmcp.resources import Resource, ResourceTemplate
from fastmcp.server import create_proxy
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from fastmcp.server.providers import LocalProvider, Provider
from fastmcp.server.providers.aggregate import AggregateProvider
from fastmcp.server.providers.fastmcp_provider import FastMCPProvider
from fastmcp.server.transforms import Transform
from fastmcp.server.transforms.namespace import Namespace
from fastmcp.server.transforms.search import BM25SearchTransform, RegexSearchTransform
from fastmcp.tools import Tool
from fastmcp.tools.tool_transform import ArgTransform
from mcp.server.mcpserver.resolve import Resolve as SdkResolve
from typing_extensions import override

import roundtrip
from roundtrip import Elicit, InvalidSignature, Resolve
from roundtrip.fastmcp import install
from roundtrip.testing.networks.fleet import KEYS

pytestmark = pytest.mark.anyio

RAN: list[Any] = []


async def ask_count() -> Elicit[int]:
    return Elicit("How many?", int)


@roundtrip.tool(confirm="Delete {path}?")
async def confirmed(path: str = "a") -> str:
    RAN.append(path)
    return "ran"


@roundtrip.tool(confirm="Delete {path}?")
def confirmed_plain(path: str = "a") -> str:
    RAN.append(path)
    return "ran"


async def filled(count: Annotated[int, SdkResolve(ask_count)]) -> str:
    RAN.append(count)
    return "ran"


class Tools(Provider):
    """Provider that makes its tools itself."""

    def __init__(self, *tools: Tool) -> None:
        super().__init__()
        self._tools = tools

    @override
    async def _list_tools(self) -> Sequence[Tool]:
        return self._tools

    @override
    async def _get_tool(self, name: str, version: Any = None) -> Tool | None:
        return next((tool for tool in self._tools if tool.name == name), None)


class More(Transform):
    """Transform that adds a tool."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @override
    async def list_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return [*tools, self._tool]

    @override
    async def get_tool(self, name: str, call_next: Any, *, version: Any = None) -> Tool | None:
        return self._tool if name == self._tool.name else await call_next(name, version=version)


class Calling(Middleware):
    """Middleware that runs a tool in place of the one called."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @override
    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        return await self._tool.run(context.message.arguments or {})


def made(fn: Callable[..., Any], name: str = "t") -> Tool:
    return Tool.from_function(fn, name=name)


def holder(fn: Callable[..., Any]) -> FastMCP[Any]:
    """Return a server without roundtrip that has the tool."""
    server = FastMCP[Any]("holder")
    server.tool(fn, name="t")
    return server


def late_child(mcp: FastMCP[Any], fn: Callable[..., Any], **options: Any) -> FastMCP[Any]:
    child = FastMCP[Any]("child")
    mcp.mount(child, **options)
    child.tool(fn, name="t")
    return child


def late_grandchild(mcp: FastMCP[Any], fn: Callable[..., Any]) -> None:
    child, grandchild = FastMCP[Any]("child"), FastMCP[Any]("grandchild")
    child.mount(grandchild, namespace="inner")
    mcp.mount(child, namespace="outer")
    grandchild.tool(fn, name="t")


def late_tool_of_installed_child(mcp: FastMCP[Any], fn: Callable[..., Any]) -> None:
    child = FastMCP[Any]("child")
    install(child, keys=KEYS[:1])
    mcp.mount(child)
    child.tool(fn, name="t")


def late_grandchild_of_installed_child(mcp: FastMCP[Any], fn: Callable[..., Any]) -> None:
    child = FastMCP[Any]("child")
    install(child, keys=KEYS[:1])
    mcp.mount(child)
    late_child(child, fn)


def late_object_in_child(mcp: FastMCP[Any], fn: Callable[..., Any]) -> None:
    child = FastMCP[Any]("child")
    mcp.mount(child)
    child.add_tool(made(fn))


def late_middleware_of_child(mcp: FastMCP[Any], fn: Callable[..., Any]) -> None:
    child = FastMCP[Any]("child")
    mcp.mount(child)
    child.add_middleware(ToolInjectionMiddleware([made(fn)]))


def behind_search(mcp: FastMCP[Any], fn: Callable[..., Any], search: Any) -> None:
    late_child(mcp, fn)
    mcp.add_transform(search())


def by_middleware(mcp: FastMCP[Any], fn: Callable[..., Any]) -> None:
    mcp.tool(lambda: "unused", name="t")
    mcp.add_middleware(Calling(made(fn)))


def by_another_tool(mcp: FastMCP[Any], fn: Callable[..., Any]) -> None:
    late_child(mcp, fn, namespace="hidden")

    async def call_hidden(path: str = "a", count: int = 0) -> Any:
        given: Any = {"count": count} if fn is filled else {"path": path}
        return await mcp.call_tool("hidden_t", given)

    mcp.tool(call_hidden, name="t")


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def log(**given: Any) -> Any:
        result: Any = fn(**given)
        return result if isinstance(result, str) else await result

    return log


WAYS: dict[str, Callable[[FastMCP[Any], Callable[..., Any]], object]] = {
    "usual": lambda mcp, fn: mcp.tool(fn, name="t"),
    "under a decorator": lambda mcp, fn: mcp.tool(decorated(fn), name="t"),
    "object": lambda mcp, fn: mcp.add_tool(made(fn)),
    "mounted before": lambda mcp, fn: mcp.mount(holder(fn)),
    "late in child": late_child,
    "late in child with namespace": lambda mcp, fn: late_child(mcp, fn, namespace="n"),
    "late in child under a decorator": lambda mcp, fn: late_child(mcp, decorated(fn)),
    "late in child, renamed": lambda mcp, fn: late_child(mcp, fn, tool_names={"t": "renamed"}),
    "partial": lambda mcp, fn: mcp.add_provider(Tools(made(functools.partial(fn)))),
    "late in grandchild": late_grandchild,
    "late in installed child": late_tool_of_installed_child,
    "late in child of installed child": late_grandchild_of_installed_child,
    "late object in child": late_object_in_child,
    "late middleware of child": late_middleware_of_child,
    "transform of child": lambda mcp, fn: late_child(mcp, lambda: "unused").add_transform(More(made(fn, "u"))),
    "provider of child": lambda mcp, fn: late_child(mcp, lambda: "unused").add_provider(Tools(made(fn, "u"))),
    "provider": lambda mcp, fn: mcp.add_provider(Tools(made(fn))),
    "provider with namespace": lambda mcp, fn: mcp.add_provider(Tools(made(fn)), namespace="n"),
    "provider of providers": lambda mcp, fn: mcp.add_provider(AggregateProvider([Tools(made(fn))])),
    "provider with transform": lambda mcp, fn: mcp.add_provider(Tools(made(fn)).wrap_transform(Namespace("n"))),
    "provider of a server": lambda mcp, fn: mcp.add_provider(FastMCPProvider(holder(fn))),
    "local provider": lambda mcp, fn: _add_local(mcp, fn, early=True),
    "late in local provider": lambda mcp, fn: _add_local(mcp, fn, early=False),
    "local provider in a provider": lambda mcp, fn: _add_local(mcp, fn, early=True, inner=True),
    "transform": lambda mcp, fn: mcp.add_transform(More(made(fn))),
    "injected": lambda mcp, fn: mcp.add_middleware(ToolInjectionMiddleware([made(fn)])),
    "run by middleware": by_middleware,
    "proxy": lambda mcp, fn: mcp.mount(create_proxy(holder(fn))),
    "proxy of a client": lambda mcp, fn: mcp.mount(create_proxy(Client(holder(fn)))),
    "copy": lambda mcp, fn: mcp.add_provider(Tools(made(fn).model_copy(update={"name": "copied"}))),
    "alias": lambda mcp, fn: mcp.add_provider(Tools(Tool.from_tool(made(fn), name="alias"))),
    "alias of an alias": lambda mcp, fn: mcp.add_provider(
        Tools(Tool.from_tool(Tool.from_tool(made(fn), name="alias"), name="second"))
    ),
    "added alias": lambda mcp, fn: mcp.add_tool(Tool.from_tool(made(fn), name="alias")),
    "hidden argument": lambda mcp, fn: mcp.add_provider(
        Tools(
            Tool.from_tool(made(fn), transform_args={next(iter(made(fn).parameters["properties"])): _with_default(fn)})
        )
    ),
    "transforming function": lambda mcp, fn: mcp.add_provider(
        Tools(Tool.from_tool(made(lambda: "unused"), transform_fn=fn))
    ),
    "behind a search": lambda mcp, fn: behind_search(mcp, fn, BM25SearchTransform),
    "behind a search by pattern": lambda mcp, fn: behind_search(mcp, fn, RegexSearchTransform),
    "called by another tool": by_another_tool,
}


def _with_default(fn: Callable[..., Any]) -> ArgTransform:
    return ArgTransform(hide=True, default=666 if fn is filled else "a")


def _add_local(mcp: FastMCP[Any], fn: Callable[..., Any], *, early: bool, inner: bool = False) -> None:
    provider = LocalProvider()
    if early:
        provider.add_tool(made(fn))
    mcp.add_provider(AggregateProvider([provider]) if inner else provider)
    if not early:
        provider.tool(fn, name="t")


async def texts_of_all(mcp: FastMCP[Any], given: dict[str, Any]) -> list[str]:
    """Return the results of all tools, listed or not, for a client whose user declines each question."""

    async def declining(*_: Any) -> ElicitResult[Any]:
        return ElicitResult(action="decline")

    async with Client(mcp, elicitation_handler=declining) as client:
        names = [tool.name for tool in await client.list_tools()]
        hidden = ["t", "u", "n_t", "renamed", "outer_inner_t", "copied", "alias", "second"]
        texts: list[str] = []
        for name in dict.fromkeys([*names, *hidden]):
            arguments = {"name": "t", "arguments": given} if name == "call_tool" else given
            result = await client.call_tool(name, arguments, raise_on_error=False)
            texts += [str(block) for block in result.content]
        return texts


@pytest.mark.parametrize("way", WAYS)
async def test_function_never_runs_unasked(way: str) -> None:
    ran: dict[tuple[str, bool], Any] = {}
    for fn, is_installed in itertools.product((confirmed, confirmed_plain, filled), (True, False)):
        RAN.clear()
        mcp = FastMCP[Any]("outer")
        if is_installed:
            install(mcp, keys=KEYS[:1])
        with suppress(InvalidSignature):
            WAYS[way](mcp, fn)
            texts = await texts_of_all(mcp, {"count": 666} if fn is filled else {"path": "a"})
            if RAN or any("'ran'" in text for text in texts):
                ran[fn.__name__, is_installed] = texts
    assert ran == {}


@pytest.mark.parametrize("way", ["late in child", "provider", "injected", "transform", "alias"])
async def test_tool_that_cannot_ask_is_not_listed_and_says_why(way: str, caplog: pytest.LogCaptureFixture) -> None:
    mcp = FastMCP[Any]("outer")
    install(mcp, keys=KEYS[:1])

    async def fresh(count: Annotated[int, SdkResolve(ask_count)]) -> str:
        return "ran"

    WAYS[way](mcp, fresh)
    async with Client(mcp) as client:
        assert await client.list_tools() == []
        assert await client.list_tools() == []
        name = "alias" if way == "alias" else "t"
        result = await client.call_tool(name, {"count": 666}, raise_on_error=False)
    assert result.is_error
    assert "asks by roundtrip, and has come to its server in a way" in str(result.content)
    told = [record.message for record in caplog.records if "leaves out of its lists" in record.message]
    assert len(told) == 1


async def test_prompts_and_resources_never_run_unasked() -> None:
    RAN.clear()
    mcp, child = FastMCP[Any]("outer"), FastMCP[Any]("child")
    install(mcp, keys=KEYS[:1])
    mcp.mount(child)
    child.prompt(filled)
    child.resource("counts://{count}")(filled)
    child.add_prompt(Prompt.from_function(confirmed))
    child.add_resource(Resource.from_function(confirmed_plain, uri="files://a"))
    child.add_template(ResourceTemplate.from_function(confirmed, uri_template="files://by/{path}"))
    async with Client(mcp) as client:
        listed = [
            await client.list_prompts(),
            await client.list_resources(),
            await client.list_resource_templates(),
        ]
        for read in (
            functools.partial(client.get_prompt, "filled", {"count": "666"}),
            functools.partial(client.get_prompt, "confirmed", {"path": "a"}),
            functools.partial(client.read_resource, "counts://666"),
            functools.partial(client.read_resource, "files://a"),
            functools.partial(client.read_resource, "files://by/a"),
        ):
            with pytest.raises(Exception, match="asks by roundtrip"):
                await cast("Any", read)()
    assert listed == [[], [], []]
    assert RAN == []


def test_resolve_is_no_argument_of_a_server_without_roundtrip() -> None:
    async def counted(count: Annotated[int, Resolve(ask_count)]) -> str:
        return "ran"

    with pytest.raises(InvalidSignature, match=r"Resolve\('ask_count'\) fills a parameter.*call install\(server\)"):
        FastMCP[Any]("foreign").tool(counted)
