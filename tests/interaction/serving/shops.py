"""Servers for `roundtrip serve`, which takes keys from the environment."""

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Annotated

import anyio

from roundtrip import Context, Depends, Elicit, Resolve, Server, ToolError
from roundtrip.ledger import RedisLedger
from tests.kit.waiting import until


def sure() -> Elicit[bool]:
    return Elicit("Sure?", bool)


def _shop(name: str, **options: object) -> Server:
    server = Server(name, **options)  # type: ignore[arg-type]

    @server.tool
    async def slowly(seconds: float = 0.0, begun: str | None = None, gate: str | None = None) -> str:
        if begun is not None:
            await anyio.Path(begun).touch()
        if gate is not None:
            await until(anyio.Path(gate).exists)
        await anyio.sleep(seconds)
        return "done"

    @server.tool
    def stubbornly(seconds: float, begun: str) -> str:
        Path(begun).touch()
        time.sleep(seconds)
        return "done"

    def marker(exited: str) -> Generator[str]:
        yield exited
        Path(exited).touch()

    def hold(seconds: float, begun: str, exited: str, marker: Annotated[str, Depends(marker)]) -> str:
        return stubbornly(seconds, begun)

    server.tool(name="hold")(hold)

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(to):
            await ctx.report_progress(number, to)
        return "counted"

    @server.tool
    def agree(sure: Annotated[bool, Resolve(sure)]) -> str:
        return f"agreed: {sure}"

    @server.tool
    def crash(code: int) -> str:
        raise ValueError(f"crashed with {code}")

    @server.tool
    def complain(code: int) -> str:
        raise ToolError(f"complains of {code}")

    return server


shop = _shop("shop")
outspoken = _shop("outspoken", mask_error_details=False)
discreet = _shop("discreet", mask_error_details=True)
with_redis = _shop("redis", ledger=RedisLedger("redis://127.0.0.1:1/0"))
keyed_by_process = _shop("keyed", keys=[os.urandom(32)])


@with_redis.tool(exactly_once=True)
def pay(sure: Annotated[bool, Resolve(sure)]) -> str:
    return f"paid: {sure}"
