"""Serve a shop on many instances. An order asks three questions and is placed once, on any network.

`roundtrip serve shop.py:server --sessions --port 8001` starts one instance. All instances share the keys from the
environment (ROUNDTRIP_KEYS or ROUNDTRIP_KEY_FILE), and the Redis at SHOP_REDIS.
"""

import json
import os
from typing import Annotated, Any, Literal

from redis.asyncio import Redis

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import RedisLedger
from roundtrip.subscriptions import RedisSubscriptionBus

PRICES = {"paperback": 9.5, "hardcover": 24.0}

redis_url = os.environ.get("SHOP_REDIS", "redis://127.0.0.1:6379/0")
server = Server("shop", ledger=RedisLedger(redis_url), subscriptions=RedisSubscriptionBus(redis_url))


def database() -> Any:
    """Connect to the database. This one replaces yours."""
    return Redis.from_url(redis_url)  # pyright: ignore[reportUnknownMemberType]


async def edition(title: str) -> Elicit[Literal["paperback", "hardcover"]]:
    return Elicit(f"Which edition of {title}?", Literal["paperback", "hardcover"])


async def copies(title: str, edition: Annotated[str, Resolve(edition)]) -> Elicit[int]:
    return Elicit(f"How many of {title}, at {PRICES[edition]:.2f} each?", int)


async def agreed(
    title: str, edition: Annotated[str, Resolve(edition)], copies: Annotated[int, Resolve(copies)]
) -> Elicit[bool]:
    return Elicit(f"Order {copies} x {title} for {copies * PRICES[edition]:.2f}?", bool)


@server.tool(exactly_once=True)
async def order(
    title: str,
    edition: Annotated[str, Resolve(edition)],
    copies: Annotated[int, Resolve(copies)],
    agreed: Annotated[bool, Resolve(agreed)],
    ctx: Context,
) -> str:
    """Order a book."""
    if not agreed:
        return f"Nothing was ordered; {title} can wait."
    # The database recognizes a repeated order by its `ctx.call.id`.
    async with database() as books:
        await books.rpush("shop:orders", json.dumps({"call": ctx.call.id, "title": title, "copies": copies}))
    await ctx.notify_resource_updated("shop://orders")
    return f"Ordered {copies} x {title}, {edition}."


@server.resource("shop://orders")
async def orders() -> str:
    """Count the orders. Every instance notifies subscribers about each new order."""
    async with database() as books:
        return str(await books.llen("shop:orders"))
