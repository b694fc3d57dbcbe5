"""Server whose tasks are delivered by Docket; the environment says where. Docket's command line imports the module."""

import os
from datetime import timedelta
from typing import Any, Final

import anyio
from docket import ConcurrencyLimit, Progress, Retry, Timeout

from roundtrip import Context, DocketEngine, Server
from roundtrip.ledger import RedisLedger, lease
from tests.interaction.tasks.effects import FOLDER as FOLDER
from tests.interaction.tasks.effects import folder, noted
from tests.interaction.tasks.server_classes import class_named

REDIS: Final = "TASKS_REDIS"
DOCKET: Final = "TASKS_DOCKET"
CLASS: Final = "TASKS_CLASS"
"""The name of the server's class, by default `Server`."""
NAME: Final = "shop"
KEY: Final = b"k" * 32


class Ended(BaseException):
    """Error of a body that no handler expects."""


async def held(what: str) -> str:
    noted(f"{what} in {os.getpid()}")
    while not (folder() / "go on").exists():  # noqa: ASYNC110 - another process makes it
        await anyio.sleep(0.02)
    return what


def make(engine: DocketEngine) -> Server[Any]:
    lease.LEASE_SECONDS = 1.0
    ledger = RedisLedger(os.environ[REDIS], prefix="ours")
    made = class_named(os.environ.get(CLASS, "Server"))
    server: Server[Any] = made("shop", keys=[KEY], ledger=ledger, task_engine=engine)

    @server.tool(task=True)
    async def build(secret: str, ctx: Context) -> str:
        first = await ctx.step("first", lambda: noted("first"))
        size = await ctx.ask("size", f"How large is {secret}?", int)
        await ctx.sleep(0.05)
        return f"{first} {secret} {size}"

    @server.tool(task=True)
    async def hold(ctx: Context) -> str:
        await ctx.step("first", lambda: noted("first"))
        try:
            return await ctx.step("second", held, "held")
        except anyio.get_cancelled_exc_class():
            noted("cancelled")
            raise

    @server.tool(task=True)
    async def call(
        ctx: Context, retry: Retry = Retry(attempts=3, delay=timedelta(seconds=0.3)), progress: Progress = Progress()
    ) -> str:
        await progress.set_total(3)
        await progress.increment(retry.attempt)
        step = await ctx.step("step", lambda: noted("step"))
        noted(f"attempt {retry.attempt}")
        if retry.attempt < 3:
            raise ConnectionError("the other side is down")
        await progress.set_message("called")
        return step

    @server.tool(task=True)
    async def hurry(ctx: Context, limit: Timeout = Timeout(timedelta(seconds=0.5))) -> str:
        sure = await ctx.ask("sure", "Sure?", bool)
        await anyio.sleep(0 if sure else 1000)
        return f"{limit.expired()}"

    @server.tool(task=True)
    async def end() -> str:
        if (folder() / "go on").exists():
            return "ended"
        noted("raised")
        raise Ended

    return server


def shop() -> Server[Any]:
    """Return the server for a process that is not Docket's."""
    return make(DocketEngine(os.environ.get(DOCKET, os.environ[REDIS]), name=NAME))


if REDIS in os.environ:
    engine = DocketEngine(os.environ.get(DOCKET, os.environ[REDIS]), name=NAME)
    server = make(engine)
    tasks = engine.tasks
    limits = [ConcurrencyLimit(max_concurrent=1)]
