"""A shop whose refunds are decided in its inbox, for a browser."""

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.types import Receive, Scope, Send

from roundtrip import Approvals, Approve, Pages, Server
from tests.kit.approving import GROUPS, KEY, reader, user_of
from tests.kit.hosts import hosted
from tests.kit.page_users import client_of, handle_in, text_of

__all__ = ["Desk", "running"]


class Desk:
    """A shop whose refunds are decided, and its address."""

    def __init__(self, portal: BlockingPortal, url: str) -> None:
        self._portal = portal
        self.url = url

    def ask(self, *notes: str) -> list[str]:
        """Make calls that wait, and return their handles."""
        return self._portal.call(self._ask, notes)

    async def _ask(self, notes: Sequence[str]) -> list[str]:
        async with client_of(self.url) as client:
            return [handle_in(await client.call_tool("refund", {"amount": 5, "note": note})) for note in notes]

    def result(self, handle: str) -> str:
        return self._portal.call(self._result, handle)

    async def _result(self, handle: str) -> str:
        async with client_of(self.url) as client:
            return text_of(await client.call_tool("continue_call", {"handle": handle}))


@asynccontextmanager
async def served() -> AsyncGenerator[str]:
    """Serve a shop whose pages have the address at which it is served."""
    inner: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await inner[0](scope, receive, send)

    async with hosted(app, lifespan="off") as url:
        server = Server[Any](
            "Corner Bookshop",
            keys=[KEY],
            principal=user_of,
            pages=Pages(base_url=url, authenticate=reader, wait=5),
            approvals=Approvals(groups=GROUPS),
        )

        @server.tool(confirm=Approve("Refund {amount} for {note}?", by="finance"))
        async def refund(amount: int, note: str) -> str:
            return f"refunded {amount} for {note}"

        inner.append(server.streamable_http_app())
        async with inner[0].router.lifespan_context(inner[0]):
            yield url


@contextmanager
def running() -> Generator[Desk]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(served()) as url:
        yield Desk(portal, url)
