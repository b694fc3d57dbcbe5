"""Servers with tasks that run in processes of their own; the environment says which folder and store they share."""

import os
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from starlette.requests import Request

from roundtrip import Context, Server, after
from roundtrip.ledger import lease
from roundtrip.stored import lease as stored_lease
from tests.interaction.tasks.effects import FOLDER as FOLDER
from tests.interaction.tasks.effects import folder, noted
from tests.kit.stores import ledger_at

LEASE_SECONDS: Final = 1.0
PLACE: Final = "TASKS_PLACE"
USER: Final = "x-user"


def _user(context: ServerRequestContext[Any, Any]) -> str | None:
    """Return the user that a header names, as if a proxy had authenticated it."""
    request = context.request
    return request.headers.get(USER) if isinstance(request, Request) else None


def shop() -> Server[Any]:
    """Return a server whose bodies stop once, where a test kills them, until a file exists."""
    lease.LEASE_SECONDS = stored_lease.END_SECONDS = LEASE_SECONDS
    ledger = ledger_at(os.environ[PLACE])
    server = Server[Any]("shop", keys=[b"k" * 32], ledger=ledger, principal=_user)

    async def stop_here() -> None:
        noted("stopped")
        while not (folder() / "go on").exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.02)

    @server.tool(task=True)
    async def ship(ctx: Context) -> str:
        noted("began")
        first = await ctx.step("first", lambda: noted("first step"))
        await stop_here()
        second = await ctx.step("second", lambda: noted("second step"))
        return f"{first}, {second}"

    @server.tool(task=after(0.5))
    async def pack(ctx: Context) -> str:
        noted("began")
        await ctx.task.status("packing")
        first = await ctx.step("first", lambda: noted("first step"))
        await stop_here()
        second = await ctx.step("second", lambda: noted("second step"))
        return f"{first}, {second}"

    @server.tool(task="required", exactly_once=True)
    async def pay(ctx: Context) -> str:
        noted("began")
        await stop_here()
        return "paid"

    @server.tool(task=True)
    async def ask(secret: str, ctx: Context) -> str:
        price = await ctx.step("price", lambda: f"price of {secret}")
        answer = await ctx.ask("word", "Which word?", str)
        return f"{secret} {price} {answer}"

    return server
