"""A server whose tools ask everything that a roundtrip server can ask, with every way to keep its state."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from mcp.server.request_state import RequestStateSecurity
from mcp_types import Root
from pydantic import BaseModel, Field, FileUrl

from roundtrip import Context, Elicit, ElicitationResult, ElicitUrl, ListRoots, Resolve, Sample, Server
from roundtrip.testing import ACCEPT, DECLINE, User

ROOTS = [Root(uri=FileUrl("file:///home/ada"))]
ORDER = "order-4711"


class Stars(BaseModel):
    value: int = Field(ge=1, le=5)


class Note(BaseModel):
    note: str | None = None


async def stars() -> Elicit[Stars]:
    return Elicit("How many stars?", Stars)


async def note() -> Elicit[Note]:
    return Elicit("A note?", Note)


async def order() -> str:
    return ORDER


async def confirmation(film: str, order: Annotated[str, Resolve(order, once=True)]) -> Elicit[bool]:
    return Elicit(f"Pay {order} for {film}?", bool)


def shop(server: Server[Any]) -> Server[Any]:
    @server.tool()
    async def media(
        model: Annotated[Any, Resolve(lambda: Sample("Praise it", max_tokens=9))],
        roots: Annotated[Any, Resolve(lambda: ListRoots())],
    ) -> str:
        return f"{model.content.text} {[str(root.uri) for root in roots.roots]}"

    @server.tool()
    async def page(ctx: Context) -> str:
        answer = await ctx.ask_outcome("page", ElicitUrl("Rate us", "https://rate.example/1"))
        return answer.action

    @server.tool()
    async def review(
        stars: Annotated[Stars, Resolve(stars)], note: Annotated[ElicitationResult[Note], Resolve(note)]
    ) -> str:
        return f"{stars.value} {note.action}"

    @server.tool()
    async def pay(
        film: str,
        confirmed: Annotated[bool, Resolve(confirmation)],
        order: Annotated[str, Resolve(order, once=True)],
    ) -> str:
        return f"{order} {confirmed}"

    @server.prompt()
    async def praise(film: str, stars: Annotated[Stars, Resolve(stars)]) -> str:
        return f"{film}: {stars.value}"

    @server.resource("film://{title}")
    async def film(title: str, stars: Annotated[Stars, Resolve(stars)]) -> str:
        return f"{title}: {stars.value}"

    return server


def make(keys: Sequence[bytes]) -> Server[Any]:
    return shop(Server[Any]("shop", keys=keys))


def encrypted(keys: Sequence[bytes]) -> Server[Any]:
    return shop(Server[Any]("shop", keys=keys, encrypt=True))


def secured(keys: Sequence[bytes]) -> Server[Any]:
    return shop(Server[Any]("shop", request_state_security=RequestStateSecurity(keys=list(keys)), seal_keys=list(keys)))


CALLS: list[tuple[str, dict[str, Any], dict[Any, Any], str]] = [
    ("media", {}, {re.compile("Praise"): "fine"}, "fine ['file:///home/ada']"),
    ("page", {}, {"page": ACCEPT}, "accept"),
    ("page", {}, {"page": DECLINE}, "decline"),
    ("review", {}, {"stars": 4, "note": {"note": "loud"}}, "4 accept"),
    ("review", {}, {"stars": [9, 4], "note": DECLINE}, "4 decline"),
    ("pay", {"film": "Solaris"}, {"confirmation": True}, f"{ORDER} True"),
]


async def play(tool: str, arguments: dict[str, Any], answers: dict[Any, Any], **options: Any) -> str:
    """Play one of the calls as an authenticated user with roots, and return its value."""
    return str((await User(make, answers, principal="ada", roots=ROOTS, **options).call(tool, arguments)).value)
