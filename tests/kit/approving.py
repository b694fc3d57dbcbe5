"""A shop whose refunds need approval, and the people who approve."""

import html
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

import httpx
from starlette.requests import Request

from roundtrip import Approval, Approvals, Approve, Context, Elicit, Pages, Resolve, Server
from roundtrip.errors import ApprovalExpired, ApprovalRejected
from tests.kit.hosts import hosted
from tests.kit.page_users import BASE, KEY, Browser, user_of
from tests.kit.waiting import WAIT, until

__all__ = ["BASE", "GROUPS", "KEY", "Person", "how_much", "large", "open_shop", "reader", "shop", "user_of"]

GROUPS: Final = {"ann": ["finance"], "fay": ["finance", "safety"], "fred": ["finance"], "sam": ["safety"], "eve": []}


async def reader(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme == "Bearer" and token.startswith("token-of-"):
        return token.removeprefix("token-of-")
    return request.cookies.get("user")


def large(order: str) -> Approve:
    return Approve(f"Refund all of {order}?", by="finance")


def how_much(order: str) -> Elicit[int]:
    return Elicit(f"How much of {order}?", int)


def shop(*, approvals: Approvals | None = None, wait: float = 20, **options: Any) -> Server[Any]:
    """Return a server whose tools ask for approvals in every way."""
    given: dict[str, Any] = {"keys": [KEY], "principal": user_of, **options}
    server = Server[Any](
        "shop",
        pages=Pages(base_url=BASE, authenticate=reader, wait=wait),
        approvals=approvals or Approvals(groups=GROUPS),
        **given,
    )

    @server.tool(confirm=Approve("Refund {amount}?", by="finance"))
    async def refund(amount: int, note: str = "") -> str:
        """Refund an amount."""
        return f"refunded {amount}"

    @server.tool()
    async def refund_all(order: str, approval: Annotated[Approval, Resolve(large)]) -> str:
        """Refund an order."""
        return f"refunded {order}, as {approval.who} says: {approval.reason}"

    @server.tool()
    async def partly(order: str, amount: Annotated[int, Resolve(how_much)], ctx: Context) -> str:
        """Refund part of an order."""
        try:
            approval = await ctx.approve("ok", f"Refund {amount} of {order}?", by="finance", within=600)
        except ApprovalRejected as error:
            return f"rejected by {error.decision.who}: {error.decision.reason}"
        except ApprovalExpired:
            return "too late"
        return f"refunded {amount} of {order}, as {approval.who} says"

    @server.tool(task="required")
    async def close_books(year: int, ctx: Context) -> str:
        """Close a year's books."""
        first = await ctx.approve("finance", f"Close {year}?", by="finance", within=3 * 24 * 3600, remind=3600)
        second = await ctx.approve("safety", f"Is {year} safe?", by="safety", within=60, fallback="unsure")
        return f"{year}: {first.who}, {second if isinstance(second, str) else second.who}"

    return server


class Person(Browser):
    """Person who decides, on the pages or with the API."""

    def __init__(self, url: str, name: str | None) -> None:
        super().__init__(url, name)
        self.name = name

    async def get(self, path: str) -> httpx.Response:
        return await self.open(path if path.startswith(BASE) else f"{self.url}{path}")

    async def inbox(self) -> list[tuple[str, str]]:
        """Return the ids and headings on all inbox pages."""
        found: list[tuple[str, str]] = []
        path = "/approvals"
        while path:
            page = await self.get(path)
            assert page.status_code == 200, page.text
            links = re.findall(r'<a href="https://shop.example/approvals/([^"]+)"[^>]*>(.*?)</a>', page.text)
            found += [(one, html.unescape(text)) for one, text in links]
            following = re.findall(r'href="https://shop.example(/approvals\?after=[^"]+)"', page.text)
            path = html.unescape(following[0]) if following else ""
        return found

    async def one(self, start: str = "") -> str:
        """Wait for an approval whose heading begins with a text, and return its id."""
        found: list[str] = []

        async def is_there() -> bool:
            found[:] = [one for one, heading in await self.inbox() if heading.startswith(start)]
            return bool(found)

        await until(is_there, what="the approval")
        return found[0]

    async def post(
        self, approval: str, choice: str, reason: str = "", *, page: str | None = None, **headers: str
    ) -> httpx.Response:
        """Send the form on an approval's page."""
        if page is None:
            page = (await self.get(f"/approvals/{approval}")).text
        tokens = re.findall(r'name="token" value="([^"]+)"', page)
        fields = {"token": tokens[0] if tokens else "", "choice": choice, "reason": reason}
        sent = {"origin": BASE, "sec-fetch-site": "same-origin"} | headers
        async with self.http() as http:
            return await http.post(f"{self.url}/approvals/{approval}", data=fields, headers=sent)

    async def decide(self, choice: str, reason: str = "", *, start: str = "") -> str:
        """Decide an approval on its page, and return its id."""
        approval = await self.one(start)
        assert (await self.post(approval, choice, reason)).status_code == 303
        return approval

    async def api(self, path: str = "", **options: Any) -> httpx.Response:
        """Send a request to the API: a POST if it has JSON."""
        headers = {"authorization": f"Bearer token-of-{self.name}"} if self.name else {}
        async with httpx.AsyncClient(headers=headers, timeout=WAIT) as http:
            method = "POST" if "json" in options else "GET"
            return await http.request(method, f"{self.url}/approvals/api{path}", **options)


@asynccontextmanager
async def open_shop(server: Server[Any] | None = None, **options: Any) -> AsyncGenerator[str]:
    async with hosted((server or shop(**options)).streamable_http_app()) as url:
        yield url
