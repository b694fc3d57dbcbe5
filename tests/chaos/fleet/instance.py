"""One instance of a fleet: a till that takes money once, and tells Redis what its body does.

It serves two tills: at `/mcp` with its ledger on Redis, at `/file` with its ledger in a file.
"""

import argparse
import contextlib
import logging
import os
import random
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Final

import anyio
import uvicorn
from redis.asyncio import Redis
from starlette.applications import Starlette

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import Ledger, RedisLedger, SqliteLedger, lease
from tests.kit.hosts import PatientServer, listening_again

__all__ = ["BODIES", "KEYS", "PREFIX", "SLOWEST", "done_key", "ids_key", "opened"]

KEYS: Final = {"old": b"the old key of a whole fleet of tills", "new": b"the new key of a whole fleet of tills"}
SLOWEST: Final = 0.3
"""Seconds that a body takes at most."""
BODIES: Final = "bodies"
"""Begins the names of the sets, one for each process, of the calls whose bodies it is in."""
PREFIX: Final = "tills"
"""The ledger's."""


def done_key(number: int) -> str:
    """Return the Redis key of a call's counts (body near, begun, ended), its instances and its receipt."""
    return f"done:{number}"


def ids_key(number: int) -> str:
    """Return the Redis key of a call's ids; two ids show that a client mixed up two calls."""
    return f"ids:{number}"


def opened(url: str) -> Any:
    """Return a client of Redis that reads text."""
    redis: Any = Redis
    return redis.from_url(url, decode_responses=True)


class Books:
    """Counts of begun and ended bodies, in Redis."""

    def __init__(self, url: str) -> None:
        self._redis = opened(url)
        self._inside = f"{BODIES}:{os.getpid()}"

    async def seen(self, number: int, call_id: str) -> None:
        await self._redis.sadd(ids_key(number), call_id)

    async def near(self, number: int) -> None:
        await self._redis.hincrby(done_key(number), "near", 1)

    async def take(self, number: int) -> str:
        """Run as a body: begin, take a while, end, and return the receipt."""
        receipt = secrets.token_hex(8)
        async with self._redis.pipeline(transaction=True) as begin:
            begin.hincrby(done_key(number), "begun", 1)
            begin.hset(done_key(number), "by", os.getpid())
            begin.hset(done_key(number), "receipt", receipt)
            begin.sadd(self._inside, number)
            await begin.execute()
        await anyio.sleep(random.uniform(0, SLOWEST))
        async with self._redis.pipeline(transaction=True) as end:
            end.hincrby(done_key(number), "ended", 1)
            end.srem(self._inside, number)
            await end.execute()
        return receipt


def till(books: Books, ledger: Ledger, keys: Sequence[str]) -> Server[Any]:
    server = Server[Any]("till", keys=[KEYS[name] for name in keys], build="1", ledger=ledger)

    async def began() -> str:
        return f"1 {keys[0]}"

    async def payer(number: int, ctx: Context) -> Elicit[str]:
        if ctx.call.leg > 1:
            # A first leg that is sent again begins another call, which no client continues.
            await books.seen(number, ctx.call.id)
        return Elicit(f"Who pays no. {number}?", str)

    async def euros(payer: Annotated[str, Resolve(payer)]) -> Elicit[int]:
        return Elicit(f"How much does {payer} pay?", int)

    async def sure(euros: Annotated[int, Resolve(euros)]) -> Elicit[bool]:
        return Elicit(f"Really {euros} euros?", bool)

    async def near(number: int, sure: Annotated[bool, Resolve(sure)]) -> bool:
        # The last thing that comes before the body.
        await books.near(number)
        return sure

    @server.tool(exactly_once=True)
    async def pay(
        number: int,
        began: Annotated[str, Resolve(began, remember=True)],
        payer: Annotated[str, Resolve(payer)],
        euros: Annotated[int, Resolve(euros)],
        sure: Annotated[bool, Resolve(near)],
    ) -> dict[str, Any]:
        """Take money."""
        receipt = await books.take(number)
        result = {"number": number, "payer": payer, "euros": euros, "sure": sure, "receipt": receipt}
        return {**result, "began": began, "ended": f"1 {keys[0]}"}

    return server


def next_till(books: Books, ledger: Ledger, keys: Sequence[str]) -> Server[Any]:
    """Return a later build: the first question has another name, the last one another wording, and one is new."""
    server = Server[Any]("till", keys=[KEYS[name] for name in keys], build="2", ledger=ledger)

    async def began() -> str:
        return f"2 {keys[0]}"

    async def buyer(number: int) -> Elicit[str]:
        return Elicit(f"Who pays no. {number}?", str)

    async def tip(buyer: Annotated[str, Resolve(buyer, former_names=("payer",))]) -> Elicit[int]:
        return Elicit(f"What does {buyer} tip?", int)

    async def euros(buyer: Annotated[str, Resolve(buyer, former_names=("payer",))]) -> Elicit[int]:
        return Elicit(f"How much does {buyer} pay?", int)

    async def sure(euros: Annotated[int, Resolve(euros)]) -> Elicit[bool]:
        return Elicit(f"Do you really pay {euros} euros?", bool)

    @server.tool(exactly_once=True)
    async def pay(
        number: int,
        began: Annotated[str, Resolve(began, remember=True)],
        buyer: Annotated[str, Resolve(buyer, former_names=("payer",))],
        tip: Annotated[int, Resolve(tip)],
        euros: Annotated[int, Resolve(euros)],
        sure: Annotated[bool, Resolve(sure)],
    ) -> dict[str, Any]:
        """Take money."""
        receipt = await books.take(number)
        result = {"number": number, "payer": buyer, "euros": euros, "sure": sure, "receipt": receipt}
        return {**result, "tip": tip, "began": began, "ended": f"2 {keys[0]}"}

    return server


BUILDS: Final = {"1": till, "2": next_till}


def _app(options: argparse.Namespace) -> Starlette:
    make, keys = BUILDS[options.build], options.keys.split(",")
    books = Books(options.redis)
    on_redis = make(books, RedisLedger(options.redis, prefix=PREFIX), keys)
    in_a_file = make(books, SqliteLedger(options.file), keys)
    how: Any = {"stateless_http": True}
    apps = [
        on_redis.streamable_http_app(streamable_http_path="/mcp", **how),
        in_a_file.streamable_http_app(streamable_http_path="/file", **how),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        del app
        async with contextlib.AsyncExitStack() as stack:
            for one in apps:
                await stack.enter_async_context(one.router.lifespan_context(one))
            yield

    return Starlette(routes=[route for app in apps for route in app.routes], lifespan=lifespan)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--lease", type=float, default=lease.LEASE_SECONDS)
    parser.add_argument("--skew", type=float, default=0.0)
    parser.add_argument("--build", choices=sorted(BUILDS), default="1")
    parser.add_argument("--keys", default="old")
    options = parser.parse_args(arguments)
    logging.disable(logging.INFO)
    lease.LEASE_SECONDS = options.lease
    if options.skew:
        true_time = time.time
        time.time = lambda: true_time() + options.skew
    config = uvicorn.Config(_app(options), log_config=None, ws="none", timeout_graceful_shutdown=30)
    PatientServer(config).run(sockets=[listening_again(options.port)])
