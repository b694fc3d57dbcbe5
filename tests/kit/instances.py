"""Builds of one shop that the chaos tests run in processes."""

import os
from typing import Annotated, Any

from roundtrip import Elicit, Resolve, Server
from tests.kit.shops import Choice, Copies, sure

KEY = b"one key for the whole fleet of shops"


async def how_many(choice: Annotated[Choice, Resolve(sure)]) -> Elicit[Copies]:
    return Elicit("How many?", Copies)


async def price() -> int:
    # Only this process can know this value: the other legs must get it from the token.
    return os.getpid()


async def wrap(copies: Annotated[Copies, Resolve(how_many)]) -> Elicit[Choice]:
    return Elicit(f"Wrap all {copies.copies}?", Choice)


def ordered(title: str, price: int, copies: Copies, wrapped: Choice, **more: int) -> dict[str, Any]:
    served = {"title": title, "price": price, "copies": copies.copies, "wrapped": wrapped.ok, "served_by": os.getpid()}
    return {**served, **more}


def shop(build: str = "1", **options: Any) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], build=build, **options)

    @server.tool()
    async def order(
        title: str,
        price: Annotated[int, Resolve(price, remember=True)],
        copies: Annotated[Copies, Resolve(how_many)],
        wrapped: Annotated[Choice, Resolve(wrap)],
    ) -> dict[str, Any]:
        return ordered(title, price, copies, wrapped)

    return server


def next_shop() -> Server[Any]:
    """Return a later build: reordered parameters, one more parameter, and a note in the result."""
    server = Server[Any]("shop", keys=[KEY], build="2")

    async def discount() -> int:
        return 5

    @server.tool()
    async def order(
        wrapped: Annotated[Choice, Resolve(wrap)],
        discount: Annotated[int, Resolve(discount)],
        copies: Annotated[Copies, Resolve(how_many)],
        price: Annotated[int, Resolve(price, remember=True)],
        title: str,
    ) -> dict[str, Any]:
        return ordered(title, price, copies, wrapped, discount=discount)

    return server


ROUNDS: list[dict[str, dict[str, Any]]] = [
    {"sure": {"ok": True}},
    {"how_many": {"copies": 3}},
    {"wrap": {"ok": False}},
]
