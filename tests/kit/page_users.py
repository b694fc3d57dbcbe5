"""Users of question pages, with their browsers and clients, and a cinema that asks them."""

import html
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

import anyio
import httpx
import httpx2
import pytest
from mcp.client import Client
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    ClientCapabilities,
    ElicitationCapability,
)
from pydantic import BaseModel, Field
from starlette.requests import Request

from roundtrip import Context, Elicit, ElicitUrl, Pages, Resolve, Server
from tests.kit.players import text_of
from tests.kit.shops import KEY
from tests.kit.waiting import WAIT, until

__all__ = [
    "BASE",
    "KEY",
    "STEPS",
    "Browser",
    "cinema",
    "client_of",
    "declare_only",
    "handle_in",
    "link_in",
    "reader",
    "resume",
    "text_of",
    "user_of",
    "with_pages",
]

BASE = "https://shop.example"


async def reader(request: Request) -> str | None:
    return request.cookies.get("user")


def user_of(ctx: Any) -> str | None:
    request = ctx.request
    return request.headers.get("x-user") if request is not None else None


class Browser:
    """One user's browser, which fills in the text fields on pages."""

    def __init__(self, url: str, user: str | None) -> None:
        self.url = url
        self._cookies = {"user": user} if user else None
        self.seen: list[str] = []
        """The headings of the pages that were answered."""

    @asynccontextmanager
    async def http(self) -> AsyncGenerator[httpx.AsyncClient]:
        """Connect as this user."""
        async with httpx.AsyncClient(cookies=self._cookies, timeout=WAIT) as http:
            yield http

    async def open(self, link: str) -> httpx.Response:
        async with self.http() as http:
            return await http.get(link.replace(BASE, self.url))

    async def open_with(self, link: str, text: str) -> str:
        """Reload a page like a browser until it has a text, and return it."""
        page = ""

        async def has_it() -> bool:
            nonlocal page
            page = (await self.open(link)).text
            return text in page

        await until(has_it, what=f"{text!r} on the page")
        return page

    async def send(self, link: str, page: str, *texts: str, decision: str = "answer") -> httpx.Response:
        """Fill in a page's text fields in order, and press a button."""
        (token,) = re.findall(r'name="token" value="([^"]+)"', page)
        names = re.findall(r'<input type="text" id="[^"]+" name="([^"]+)"', page)
        fields = {"token": token, "decision": decision, **dict(zip(names, texts, strict=False))}
        headers = {"origin": BASE, "sec-fetch-site": "same-origin"}
        async with self.http() as http:
            return await http.post(link.replace(BASE, self.url), data=fields, headers=headers)

    async def answer_all(self, link: str, answers: Mapping[str, str]) -> str:
        """Answer page after page until the call has ended, and return the last heading."""
        with anyio.fail_after(WAIT):
            while True:
                page = (await self.open(link)).text
                heading = html.unescape(re.findall(r"<h1[^>]*>(.*?)</h1>", page)[0])
                if "<form" in page:
                    text = next(answer for start, answer in answers.items() if heading.startswith(start))
                    assert (await self.send(link, page, text)).status_code == 303
                    self.seen.append(heading)
                elif heading != "Still working":
                    return heading
                else:
                    await anyio.sleep(0.01)


@asynccontextmanager
async def client_of(
    url: str, user: str | None = "ann", *, mode: str = "2026-07-28", **options: Any
) -> AsyncGenerator[Client]:
    headers = {"x-user": user} if user else None
    async with httpx2.AsyncClient(headers=headers, timeout=WAIT) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(cast("Any", transport), mode=mode, **options) as client:
            yield client


def link_in(result: Any) -> str:
    (link,) = re.findall(r"https://\S+", text_of(result))
    return link


def handle_in(result: Any) -> str:
    (handle,) = re.findall(r"handle='([^']+)'", text_of(result))
    return handle


async def resume(client: Client, asked: Any, answers: Mapping[str, Any] | None = None) -> Any:
    """Continue the call whose handle is in a result."""
    given = {} if answers is None else {"answers": answers}
    return await client.call_tool("continue_call", {"handle": handle_in(asked), **given})


def declare_only(monkeypatch: pytest.MonkeyPatch, elicitation: ElicitationCapability) -> None:
    """Let clients declare one mode of elicitation. The SDK's client declares both or none."""
    build: Any = vars(ClientSession)["_build_capabilities"]

    def capabilities(session: ClientSession, version: str) -> ClientCapabilities:
        return build(session, version).model_copy(update={"elicitation": elicitation})

    monkeypatch.setattr(ClientSession, "_build_capabilities", capabilities)


class Seat(BaseModel):
    row: int = Field(ge=1, le=9, title="Row")
    window: bool = False


def which_seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which seat for {film}?", Seat)


STEPS: list[str] = []


def cinema(**options: Any) -> Server[Any]:
    given: dict[str, Any] = {"keys": [KEY], "principal": user_of, **options}
    server = Server[Any]("cinema", **given)

    @server.tool(confirm="Book {film}?")
    async def book(film: str, seat: Annotated[Seat, Resolve(which_seat)], ctx: Context) -> str:
        """Book a seat."""
        await ctx.step("reserve", lambda: STEPS.append(film))
        size = await ctx.ask("size", "How many?", int)
        return f"{film}, row {seat.row}, {size}"

    @server.tool()
    async def offer(ctx: Context) -> str:
        """Ask why, if the user declines."""
        seats = await ctx.ask_outcome("seats", "How many?", int)
        return f"{seats.action}d, as {await ctx.ask('why', 'Why not?', str)}"

    @server.tool()
    async def many(number: int, ctx: Context) -> str:
        """Ask many questions."""
        return str(sum([await ctx.ask(f"q{place}", f"Number {place}?", int) for place in range(number)]))

    @server.tool()
    async def pay(ctx: Context) -> str:
        """Ask with a form, with a link, and with a form again."""
        card = await ctx.ask("card", "Which card?", int)
        await ctx.ask("bank", ElicitUrl("Pay at your bank", "https://bank.example/pay"))
        return f"paid by {card}, tip {await ctx.ask('tip', 'Which tip?', int)}"

    return server


def with_pages(**options: Any) -> Server[Any]:
    settings: dict[str, Any] = {"base_url": BASE, "authenticate": reader, "wait": 20, **options}
    return cinema(pages=Pages(**settings))
