"""Five tools that ask, on each class of server, and hosts that show them in apps."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

import anyio
from fastmcp import FastMCP
from mcp.client import Client
from mcp.client.extension import advertise
from mcp.server import MCPServer
from mcp_types import CallToolResult

import roundtrip
from roundtrip import Approvals, Approve, Context, Elicit, Pages, Resolve, Server
from roundtrip.channels.apps.app_messages import APP_META
from roundtrip.channels.server_channels import APP_MIME_TYPE, UI_EXTENSION
from roundtrip.fastmcp import install as install_in_fastmcp
from roundtrip.install import install
from tests.kit.approving import reader
from tests.kit.hosts import hosted
from tests.kit.page_users import BASE, KEY, client_of, handle_in, text_of, user_of
from tests.kit.waiting import WAIT

__all__ = ["APPS", "CLASSES", "FORMS_IN_APPS", "MODES", "App", "app_of", "continued", "host", "made", "serving"]

APPS: Final[dict[str, Any]] = {"mimeTypes": [APP_MIME_TYPE]}
FORMS_IN_APPS: Final[dict[str, Any]] = {**APPS, "elicitation": {}}
CLASSES: Final = ("server", "mcpserver", "fastmcp", "mounted")
MODES: Final = ("2026-07-28", "legacy")


def which_seat(film: str) -> Elicit[int]:
    return Elicit(f"Which seat for {film}?", int)


def made(kind: str, **options: Any) -> Any:
    """Return a server of a class with all tools."""
    pages: dict[str, Any] = {"base_url": BASE, "authenticate": reader, "wait": 1, **options.pop("pages", {})}
    given: dict[str, Any] = {"keys": [KEY], "principal": user_of, "pages": Pages(**pages), **options}
    given.setdefault("approvals", Approvals(groups={"fred": ["finance"]}))
    if kind == "server":
        server = Server[Any]("cinema", **given)
        _add_tools(server.tool)
        return server
    if kind == "mcpserver":
        sdk = MCPServer[Any]("cinema")
        install(sdk, **given)
        _add_tools(sdk.tool)
        return sdk
    mcp = FastMCP[Any]("cinema")
    install_in_fastmcp(mcp, **given)
    if kind == "fastmcp":
        _add_tools(mcp.tool)
        return mcp
    child = FastMCP[Any]("child")
    # Mounted tools need the inbox of the outer server, so the child has approvals, too.
    install_in_fastmcp(child, **given)
    _add_tools(child.tool)
    mcp.mount(child, namespace="c")
    return mcp


def _add_tools(tool: Callable[..., Any]) -> None:
    @tool()
    @roundtrip.tool()
    async def book(film: str, seat: Annotated[int, Resolve(which_seat)]) -> str:
        """Book a seat."""
        return f"{film}, seat {seat}"

    @tool()
    @roundtrip.tool(confirm="Delete {film}?")
    async def delete(film: str) -> str:
        """Delete a film."""
        return f"{film} is deleted"

    @tool()
    @roundtrip.tool()
    async def order(ctx: Context) -> str:
        """Order cups, and let the user review the number."""
        cups = await ctx.ask("cups", "How many cups?", int)
        await ctx.review("check", "Is this right?", of=["cups"])
        return f"{cups} cups"

    @tool()
    @roundtrip.tool()
    async def survey(ctx: Context) -> str:
        """Ask three questions in a row."""
        return str([await ctx.ask(f"q{place}", f"Number {place}?", int) for place in range(3)])

    @tool()
    @roundtrip.tool(confirm=Approve("Refund all of {order}?", by="finance"))
    async def refund(order: str) -> str:
        """Refund an order, once the finance group agrees."""
        return f"refunded {order}"

    @tool()
    async def plain(film: str) -> str:
        """Ask nothing."""
        return film

    del book, delete, order, survey, refund, plain


def app_of(server: Any) -> Any:
    return server.http_app() if isinstance(server, FastMCP) else server.streamable_http_app()


def serving(server: Any) -> AbstractAsyncContextManager[str]:
    return hosted(app_of(server))


@asynccontextmanager
async def host(
    url: str, user: str | None = "ann", *, mode: str = "2026-07-28", declares: Mapping[str, Any] = APPS, **options: Any
) -> AsyncGenerator[Client]:
    """Connect a client that shows apps."""
    extensions = [advertise(UI_EXTENSION, dict(declares))]
    async with client_of(url, user, mode=mode, extensions=extensions, **options) as client:
        yield client


@dataclass(eq=False)
class App:
    """The view of one tool result: it does what the document does, without a browser."""

    client: Client
    payload: Mapping[str, Any]
    state: Mapping[str, Any]

    @classmethod
    def of(cls, client: Client, result: CallToolResult) -> "App":
        payload = (result.meta or {})[APP_META]
        return cls(client, payload, payload["state"])

    @property
    def heading(self) -> str:
        return self.state["questions"][0]["heading"]

    async def send(self, texts: Mapping[str, list[str]], *, round_: str | None = None) -> CallToolResult:
        given = {"ticket": self.payload["ticket"], "round": round_ or self.state["round"], "answers": texts}
        result = await self.client.call_tool(self.payload["tools"]["answer"], given)
        if result.structured_content is not None:
            self.state = result.structured_content["state"]
        return result

    async def answer(self, text: str | None = None) -> CallToolResult:
        """Answer the only question with a text, or with Yes."""
        texts = {} if text is None else {self.state["questions"][0]["fields"][0]["id"]: [text]}
        return await self.send({**texts, "decision": ["answer"]})

    async def look(self) -> Mapping[str, Any]:
        result = await self.client.call_tool(self.payload["tools"]["look"], {"ticket": self.payload["ticket"]})
        assert result.structured_content is not None, text_of(result)
        self.state = result.structured_content["state"]
        return self.state

    async def until(self, kind: str) -> Mapping[str, Any]:
        with anyio.fail_after(WAIT):
            while self.state["kind"] != kind:
                await anyio.sleep(0.01)
                await self.look()
        return self.state


async def continued(client: Client, asked: Any) -> str:
    """Return the text of a call's result, as a model gets it."""
    return text_of(await client.call_tool("continue_call", {"handle": handle_in(asked)}))
