"""Questions, resolvers and models that most question tests use, and servers with one tool."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import BaseModel

from roundtrip import Elicit, Server

__all__ = ["KEY", "Choice", "Copies", "Seat", "server_with", "sure", "which_seat"]

KEY: Final = b"k" * 32


class Choice(BaseModel):
    """Form with one yes-no field."""

    ok: bool


class Seat(BaseModel):
    """Form with one text field."""

    row: str


class Copies(BaseModel):
    """Form with one number field."""

    copies: int


async def sure() -> Elicit[Choice]:
    return Elicit("Sure?", Choice)


async def which_seat() -> Elicit[Seat]:
    return Elicit("Which row?", Seat)


def server_with(*tools: Callable[..., Any], keys: Sequence[bytes] | None = (KEY,), **options: Any) -> Server[Any]:
    """Return a server with these functions as tools."""
    server = Server[Any]("shop", keys=keys, **options)
    for tool in tools:
        server.tool()(tool)
    return server
