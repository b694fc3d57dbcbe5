"""A bookshop with question pages, served whole: tools, stored calls, workers and pages, and a client for its users."""

import re
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import quote

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Implementation, TextContent
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from roundtrip import Context, Elicit, Pages, Resolve, Server
from tests.kit.hosts import hosted

__all__ = ["ConnectedShop", "connected_shop"]

_KEY: Final = b"k" * 32
_MAX_AGE_SECONDS: Final = 600.0
_WAIT_SECONDS: Final = 1.0


class Delivery(BaseModel):
    name: str = Field(min_length=2, max_length=40, title="Name on the parcel")
    copies: int = Field(1, ge=1, le=9, title="Copies")
    way: Literal["post", "bike"] = Field(title="Delivery")


def how(title: str) -> Elicit[Delivery]:
    return Elicit(f"How shall we send {title}?\nThe parcel weighs 1.2 kg.", Delivery)


class ConnectedShop:
    """A running shop.

    Args:
        portal: Runs its event loop.
    """

    def __init__(self, portal: BlockingPortal) -> None:
        self.base = ""
        self.orders: list[str] = []
        self._portal = portal

    def call(self, tool: str, *, user: str = "ada", name: str = "chat", **arguments: Any) -> str:
        """Call a tool for a user whose client can be asked nothing, and return its text."""
        return self._portal.call(self._call, tool, arguments, user, name)

    def link(self, tool: str, *, user: str = "ada", name: str = "chat", **arguments: Any) -> str:
        """Call a tool, and return the link to its page."""
        (link,) = re.findall(r"https?://\S+", self.call(tool, user=user, name=name, **arguments))
        return link

    def continued(self, handle: str, *, user: str = "ada") -> str:
        """Return the text of a call that has asked."""
        return self.call("continue_call", user=user, handle=handle)

    def server(self) -> Server[Any]:
        pages = Pages(base_url=self.base, authenticate=self._reader, name="Corner Bookshop", wait=_WAIT_SECONDS)
        server = Server[Any]("shop", keys=[_KEY], principal=_user_of, pages=pages, max_age=_MAX_AGE_SECONDS)
        orders = self.orders

        @server.tool(confirm="Order {title}?")
        async def order(title: str, delivery: Annotated[Delivery, Resolve(how)], ctx: Context) -> str:
            """Order a book."""
            note = await ctx.ask("note", f"A note for the courier of {title}?", str)
            await ctx.review("check", "Is this right?", of=["note"])
            orders.append(title)
            return f"{title}: {delivery.copies} for {delivery.name} by {delivery.way}, {note}"

        @server.tool
        async def twice(ctx: Context) -> str:
            """Ask two questions."""
            name = await ctx.ask("name", "Your name?", str)
            town = await ctx.ask("town", "Your town?", str)
            orders.append(f"{name}, {town}")
            return f"{name}, {town}"

        @server.tool
        async def choose(text: str, ctx: Context) -> str:
            """Ask with the text of a model everywhere."""
            answers = await ctx.ask_all(
                {
                    "one": Elicit(f"{text}\n{text}", [{text: text, "other": text}]),
                    "two": Elicit(text, Literal["left", "right"]),
                }
            )
            return f"{answers['one'] == [text]} {answers['two']}"

        server.custom_route("/login", methods=["GET"])(self._log_in)
        return server

    async def _reader(self, request: Request) -> str | Response | None:
        user = request.cookies.get("reader")
        return user or RedirectResponse(f"/login?next={quote(request.state.page_url)}", 303)

    async def _log_in(self, request: Request) -> Response:
        # A real one checks a password, and the address to come back to.
        response = RedirectResponse(request.query_params["next"], 303)
        response.set_cookie("reader", "ada", httponly=True, samesite="lax")
        return response

    async def _call(self, tool: str, arguments: dict[str, Any], user: str, name: str) -> str:
        async with httpx2.AsyncClient(headers={"x-user": user}) as http:
            transport = streamable_http_client(f"{self.base}/mcp", http_client=http)
            info = Implementation(name=name, version="1")
            async with Client(cast("Any", transport), mode="2026-07-28", client_info=info) as client:
                result = await client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def _user_of(ctx: Any) -> str | None:
    return ctx.request.headers.get("x-user") if ctx.request is not None else None


@contextmanager
def connected_shop() -> Generator[ConnectedShop]:
    """Serve a shop on this machine, in a thread."""
    with start_blocking_portal() as portal:
        shop = ConnectedShop(portal)
        with portal.wrap_async_context_manager(_serving(shop)):
            yield shop


@asynccontextmanager
async def _serving(shop: ConnectedShop) -> AsyncGenerator[None]:
    served: list[ASGIApp] = []

    async def later(scope: Scope, receive: Receive, send: Send) -> None:
        await served[0](scope, receive, send)

    # The address of the pages is known once the port is open.
    async with hosted(later, lifespan="off") as shop.base:
        app = shop.server().streamable_http_app()
        async with app.router.lifespan_context(app):
            served.append(app)
            yield
