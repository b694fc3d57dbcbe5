"""Servers whose tasks are run by `roundtrip worker`; the environment says where they are stored."""

import os
from typing import Any, Final

import anyio

from roundtrip import Context, Server
from roundtrip.ledger import RedisLedger, SqliteLedger, lease
from tests.interaction.tasks.effects import FOLDER as FOLDER
from tests.interaction.tasks.effects import folder, noted
from tests.interaction.tasks.server_classes import class_named
from tests.kit.stores import ledger_at

LEASE: Final = "TASKS_LEASE"
PLACE: Final = "TASKS_PLACE"
REDIS: Final = "TASKS_REDIS"
KEYS: Final = ["11" * 32, "22" * 32]


def _server(ledger: Any, *, keys: list[str], kind: str = "Server") -> Server[Any]:
    lease.LEASE_SECONDS = float(os.environ.get(LEASE, "1"))
    server: Server[Any] = class_named(kind)("workshop", keys=[bytes.fromhex(key) for key in keys], ledger=ledger)

    @server.tool(task=True)
    async def build(secret: str, ctx: Context) -> str:
        await ctx.report_progress(1, message=f"building {secret}")
        first = await ctx.step("first", lambda: noted("first"))
        size = await ctx.ask("size", f"How large is {secret}?", int)
        await ctx.sleep(0.01)
        return f"{first} {secret} {await ctx.step('last', lambda: size)}"

    @server.tool(task=True)
    async def ask_twice(ctx: Context) -> str:
        price = await ctx.step("price", lambda: 7)
        return f"{await ctx.ask('a', 'A?', int)} {await ctx.ask('b', 'B?', int)} {price}"

    @server.tool(task=True)
    async def hold(ctx: Context) -> str:
        await ctx.step("first", lambda: noted("first"))
        noted(f"held by {os.getpid()}")
        while not (folder() / "go on").exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.02)
        return "done"

    @server.tool(task="required", exactly_once=True)
    async def pay(ctx: Context) -> str:
        noted("paid")
        await anyio.sleep(0 if (folder() / "go on").exists() else 1000)
        return "paid"

    return server


def shop() -> Server[Any]:
    """Return a server with both keys, the newer one first."""
    return _server(SqliteLedger(folder() / "tasks.db", durable=False), keys=KEYS)


def fastmcp_shop() -> Any:
    return _server(SqliteLedger(folder() / "tasks.db", durable=False), keys=KEYS, kind="FastMCP")


def mcpserver_shop() -> Any:
    return _server(SqliteLedger(folder() / "tasks.db", durable=False), keys=KEYS, kind="MCPServer")


def old_shop() -> Server[Any]:
    return _server(SqliteLedger(folder() / "tasks.db", durable=False), keys=KEYS[1:])


def new_shop() -> Server[Any]:
    return _server(SqliteLedger(folder() / "tasks.db", durable=False), keys=KEYS[:1])


def redis_shop() -> Server[Any]:
    return _server(RedisLedger(os.environ[REDIS], timeout=0.5), keys=KEYS)


def placed_shop() -> Server[Any]:
    return _server(ledger_at(os.environ[PLACE]), keys=KEYS)


def forgetful() -> Server[Any]:
    return _server(None, keys=KEYS)


def idle() -> Server[Any]:
    return Server[Any]("idle", keys=[bytes.fromhex(KEYS[0])], ledger=SqliteLedger(folder() / "tasks.db"))
