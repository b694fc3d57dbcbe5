"""Builds of one shop, as the processes of the chaos tests run them."""

import os
from typing import Annotated, Any

from pydantic import BaseModel

from roundtrip import Elicit, Resolve, Server

KEY = b"one key for the whole fleet of shops"


class Choice(BaseModel):
    ok: bool


class Copies(BaseModel):
    copies: int


async def sure() -> Elicit[Choice]:
    return Elicit("Sure?", Choice)


async def how_many(choice: Annotated[Choice, Resolve(sure)]) -> Elicit[Copies]:
    return Elicit("How many?", Copies)


async def price() -> int:
    # What only this process could have come up with: the other legs must get it from the token.
    return os.getpid()


async def wrap(copies: Annotated[Copies, Resolve(how_many)]) -> Elicit[Choice]:
    return Elicit(f"Wrap all {copies.copies}?", Choice)


def shop(build: str = "1", **options: Any) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], build=build, **options)

    @server.tool()
    async def order(
        title: str,
        price: Annotated[int, Resolve(price, once=True)],
        copies: Annotated[Copies, Resolve(how_many)],
        wrapped: Annotated[Choice, Resolve(wrap)],
    ) -> dict[str, Any]:
        return {
            "title": title,
            "price": price,
            "copies": copies.copies,
            "wrapped": wrapped.ok,
            "served_by": os.getpid(),
        }

    return server


def next_shop() -> Server[Any]:
    """Return a later build: parameters in another order, one more of them, and a note in the result."""
    server = Server[Any]("shop", keys=[KEY], build="2")

    async def discount() -> int:
        return 5

    @server.tool()
    async def order(
        wrapped: Annotated[Choice, Resolve(wrap)],
        discount: Annotated[int, Resolve(discount)],
        copies: Annotated[Copies, Resolve(how_many)],
        price: Annotated[int, Resolve(price, once=True)],
        title: str,
    ) -> dict[str, Any]:
        return {
            "title": title,
            "price": price,
            "copies": copies.copies,
            "wrapped": wrapped.ok,
            "served_by": os.getpid(),
            "discount": discount,
        }

    return server


ROUNDS: list[dict[str, dict[str, Any]]] = [
    {"sure": {"ok": True}},
    {"how_many": {"copies": 3}},
    {"wrap": {"ok": False}},
]
