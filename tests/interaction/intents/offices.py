"""An office whose calls are stored, and its clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import httpx

from roundtrip import Approvals, Approve, Context, Pages, Server, ToolError, after
from roundtrip.adapters.finding import attached
from roundtrip.ledger import MemoryLedger
from roundtrip.stored.book import CallBook
from roundtrip.stored.operations import CallOperations
from tests.kit.approving import GROUPS
from tests.kit.approving import reader as person_reader
from tests.kit.hosts import hosted
from tests.kit.page_users import BASE, KEY, user_of
from tests.kit.peer import Peer, app_of
from tests.kit.waiting import WAIT

__all__ = ["RECALLED", "End", "Office", "book_of", "call_in", "end", "opened", "operator_of", "peer_of"]

RECALLED = "roundtrip/recalled"
End = Literal["cancel", "expire"]


class Office:
    """Server whose calls are stored, with a record of their effects."""

    def __init__(self, **options: Any) -> None:
        self.ran: list[str] = []
        self.steps: list[str] = []
        self.keys: list[str] = []
        self.ledger = options.setdefault("ledger", MemoryLedger())
        self.go_on = anyio.Event()
        self.server = server = Server[Any](
            "office",
            keys=[KEY],
            principal=user_of,
            pages=Pages(base_url=BASE, authenticate=person_reader, wait=0.2),
            approvals=Approvals(groups=GROUPS),
            **options,
        )

        @server.tool(task=True, once_per="{order}")
        async def report(order: str, ctx: Context, copies: int = 1) -> str:
            """Make a report as a task."""
            await ctx.step("step", lambda: self.steps.append(order))
            word = await ctx.ask("word", "Which word?", str)
            self.ran.append(order)
            return f"{order} {word} {copies} no. {len(self.ran)}"

        @server.tool(task=after(0.05), once_per="{order}")
        async def later(order: str) -> str:
            """Become a task if it takes long."""
            self.ran.append(order)
            if order == "slow":
                await self.go_on.wait()
            return f"{order} no. {len(self.ran)}"

        @server.tool(once_per="{order}")
        async def pick(order: str, ctx: Context) -> str:
            """Ask on a page."""
            self.keys.append(ctx.idempotency_key)
            await ctx.step("step", lambda: self.steps.append(order))
            word = await ctx.ask("word", "Which word?", str)
            self.ran.append(order)
            return f"{order} {word} no. {len(self.ran)}"

        @server.tool(task=True, once_per="{order}", on_failure="rerun")
        async def fail(order: str) -> str:
            """Fail the first time."""
            self.ran.append(order)
            if len(self.ran) == 1:
                raise ToolError("out of stock")
            return f"{order} no. {len(self.ran)}"

        @server.tool(task=True, once_per="{order}", on_failure="rerun", timeout=0.1)
        async def hang(order: str) -> str:
            """Take too long."""
            self.ran.append(order)
            await anyio.sleep(60)
            return order

        @server.tool(once_per="{order}", on_failure="rerun", confirm=Approve("Refund {order}?", by="finance"))
        async def retried_refund(order: str) -> str:
            """Refund an order."""
            return order

        @server.tool(once_per="{order}", confirm=Approve("Refund {order}?", by="finance"))
        async def refund(order: str) -> str:
            """Refund an order."""
            self.ran.append(order)
            return f"{order} no. {len(self.ran)}"

        @server.tool(task=True, once_per="{order}", scope="service")
        async def shared(order: str, ctx: Context) -> str:
            """Make something for everybody."""
            word = await ctx.ask("word", "Which word?", str)
            self.ran.append(order)
            return f"{order} {word} no. {len(self.ran)}"


@asynccontextmanager
async def opened(office: Office) -> AsyncGenerator[str]:
    async with hosted(app_of(office.server)) as url:
        yield url


@asynccontextmanager
async def peer_of(url: str, user: str = "ann", **options: Any) -> AsyncGenerator[Peer]:
    async with httpx.AsyncClient(timeout=WAIT) as http:
        yield Peer(http, f"{url}/mcp", headers={"x-user": user}, **options)


def book_of(office: Office) -> CallBook:
    server = attached(office.server)
    assert server is not None
    assert server.call_service is not None
    return server.call_service.book


def operator_of(office: Office) -> CallOperations:
    return CallOperations(book_of(office))


def call_in(task: dict[str, Any]) -> str:
    return task["taskId"].partition(".")[0]


async def end(office: Office, action: End, call_id: str) -> None:
    operator = operator_of(office)
    await (operator.cancel(call_id) if action == "cancel" else operator.expire(call_id))
