"""A bookshop with question pages and an inbox, served whole: tools, stored calls, workers, pages, and its client."""

import re
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp_types import Implementation
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from roundtrip import Approvals, Approve, Context, Elicit, Pages, Resolve, Server
from tests.kit.approving import GROUPS, KEY, user_of
from tests.kit.approving import reader as reader_of
from tests.kit.hosts import hosted
from tests.kit.page_users import client_of, text_of

__all__ = ["MAX_AGE_SECONDS", "Asked", "ConnectedShop", "connected_shop"]

MAX_AGE_SECONDS = 600.0


class Delivery(BaseModel):
    name: str = Field(min_length=2, max_length=40, title="Name on the parcel")
    copies: int = Field(1, ge=1, le=9, title="Copies")
    way: Literal["post", "bike"] = Field(title="Delivery")


def how(title: str) -> Elicit[Delivery]:
    return Elicit(f"How shall we send {title}?\nThe parcel weighs 1.2 kg.", Delivery)


class Asked(NamedTuple):
    """A call that waits: the link to its page, and the handle with which it is continued."""

    link: str
    handle: str


class ConnectedShop:
    """A running shop, and the client of its user Ann.

    Args:
        portal: Runs its event loop.
    """

    def __init__(self, portal: BlockingPortal) -> None:
        self.base = ""
        self.orders: list[str] = []
        self._portal = portal

    def ask(self, tool: str, *, client: str = "chat", **arguments: Any) -> Asked:
        """Call a tool for a user whose client can be asked nothing."""
        told = self._portal.call(self._call, tool, arguments, client)
        return Asked(re.findall(r"https?://\S+", told)[0], re.findall(r"handle='([^']+)'", told)[0])

    def result(self, asked: Asked) -> str:
        """Return the text of a call that has asked."""
        return self._portal.call(self._call, "continue_call", {"handle": asked.handle}, "chat")

    async def _call(self, tool: str, arguments: dict[str, Any], client: str) -> str:
        async with client_of(self.base, client_info=Implementation(name=client, version="1")) as caller:
            return text_of(await caller.call_tool(tool, arguments))

    def server(self) -> Server[Any]:
        server = Server[Any](
            "shop",
            keys=[KEY],
            principal=user_of,
            pages=Pages(base_url=self.base, authenticate=_reader, name="Corner Bookshop", wait=1),
            approvals=Approvals(groups=GROUPS),
            max_age=MAX_AGE_SECONDS,
        )

        @server.tool(confirm="Order {title}?")
        async def order(title: str, delivery: Annotated[Delivery, Resolve(how)], ctx: Context) -> str:
            """Order a book."""
            note = await ctx.ask("note", f"A note for the courier of {title}?", str)
            await ctx.review("check", "Is this right?", of=["note"])
            self.orders.append(title)
            return f"{title}: {delivery.copies} for {delivery.name} by {delivery.way}, {note}"

        @server.tool
        async def twice(ctx: Context) -> str:
            """Ask two questions."""
            name = await ctx.ask("name", "Your name?", str)
            town = await ctx.ask("town", "Your town?", str)
            self.orders.append(f"{name}, {town}")
            return f"{name}, {town}"

        @server.tool(confirm=Approve("Refund {amount} for {note}?", by="finance"))
        async def refund(amount: int, note: str) -> str:
            return f"refunded {amount} for {note}"

        server.custom_route("/login", methods=["GET"])(_log_in)
        return server


async def _reader(request: Request) -> str | Response | None:
    return await reader_of(request) or RedirectResponse(f"/login?next={quote(request.state.page_url)}", 303)


async def _log_in(request: Request) -> Response:
    # A real one checks a password, and the address to come back to.
    response = RedirectResponse(request.query_params["next"], 303)
    response.set_cookie("user", "ann", httponly=True, samesite="lax")
    return response


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
