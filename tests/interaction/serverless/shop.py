"""A server as an author writes it for Lambda, imported by each new process of a test."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from pydantic import Field

from roundtrip import Context, Resolve, Server
from roundtrip.ledger import SqliteLedger
from roundtrip.questions.markers import Elicit
from roundtrip.serverless import lambda_handler


@asynccontextmanager
async def lifespan(server: Any) -> AsyncGenerator[None]:
    yield
    if "SHOP_SAYS" in os.environ:
        print('"left"')


server = Server(
    "shop",
    lifespan=lifespan,
    ledger=SqliteLedger(os.environ["SHOP_LEDGER"]) if "SHOP_LEDGER" in os.environ else None,
)
paid: list[str] = []


def ask_size(cup: str) -> Elicit[int]:
    return Elicit(f"How many milliliters of {cup}?", Annotated[int, Field(ge=1)])


@server.tool
async def order(cup: str, size: Annotated[int, Resolve(ask_size)], ctx: Context) -> str:
    """Order a cup."""
    sugar = await ctx.ask("sugar", "With sugar?", bool)
    return f"{size} ml of {cup}, {'sweet' if sugar else 'plain'}, by process {os.getpid()}"


@server.tool(exactly_once=True, uncovered="round")
def pay(amount: int) -> str:
    """Pay."""
    paid.append(f"{amount}")
    return f"payment {len(paid)} of process {os.getpid()}"


handler = lambda_handler(server)
