"""A cinema whose tools ask in every way, with examples of every fault."""

from itertools import count
from typing import Annotated, Any, Literal

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import Root
from pydantic import BaseModel, Field, FileUrl

from roundtrip import Context, Elicit, ElicitationResult, ElicitUrl, ListRoots, Resolve, Sample, Server, ToolError
from roundtrip.testing import Explored
from tests.kit.shops import server_with

ROOTS = [Root(uri=FileUrl("file:///films"))]


class Seat(BaseModel):
    row: Literal["front", "back"]


class Snack(BaseModel):
    name: str


class Code(BaseModel):
    code: Annotated[str, Field(pattern="^[0-9]{3}-[0-9]{3}$")]


def seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


def snack(film: str, seat: Annotated[ElicitationResult[Seat], Resolve(seat)]) -> Elicit[Snack]:
    return Elicit(f"Something to eat with {film}?", Snack)


def book(
    film: str,
    seat: Annotated[ElicitationResult[Seat], Resolve(seat)],
    snack: Annotated[ElicitationResult[Snack], Resolve(snack)],
) -> str:
    row = seat.data.row if seat.action == "accept" else seat.action
    return f"{film}, row: {row}, {snack.data.name if snack.action == 'accept' else snack.action}"


def need(film: str, seat: Annotated[Seat, Resolve(seat)]) -> dict[str, str]:
    return {"film": film, "row": seat.row}


async def leave(ctx: Context) -> str:
    stay = await ctx.ask_outcome("stay", "Would you stay?", bool)
    if stay.action != "decline":
        return stay.action
    why = await ctx.ask_outcome("why", "Why not?", str)
    return f"left: {why.action}"


async def nag(ctx: Context) -> str:
    for number in count(1):
        try:
            await ctx.ask_outcome(f"sure-{number}", "Are you sure?", bool)
        except MCPError:
            continue
    return "never"


async def trap(ctx: Context) -> str:
    first = await ctx.ask_outcome("first", "One?", bool)
    second = await ctx.ask_outcome("second", "Two?", bool)
    return {"accept": "fine", "decline": "well"}[second.action] if first.action == "decline" else "good"


async def survey(ctx: Context) -> str:
    page = await ctx.ask_outcome("page", ElicitUrl("Rate us", "https://rate.example/1"))
    praise = await ctx.ask("praise", Sample("Praise it", max_tokens=9))
    roots = await ctx.ask("films", ListRoots())
    text = getattr(praise.content, "text", None)
    return f"{page.action}, {text}, {len(roots.roots)} root"


async def unlock(ctx: Context) -> str:
    return (await ctx.ask("code", "Which code?", Code, attempts=99)).code


async def hang(ctx: Context) -> str:
    if (await ctx.ask_outcome("wait", "Wait?", bool)).action == "cancel":
        await anyio.sleep_forever()
    return "done"


def broken(film: str, seat: Annotated[ElicitationResult[Seat], Resolve(seat)]) -> str:
    if seat.action == "cancel":
        raise MCPError(code=-32050, message="out of film")
    if seat.action == "decline":
        raise ToolError("no seat,\nno \x1b[31mfilm")
    return film


def review(film: str, seat: Annotated[ElicitationResult[Seat], Resolve(seat)]) -> str:
    return f"Review {film} from the row: {seat.action}"


def cinema() -> Server[Any]:
    """Make one instance of it."""
    loops = {"left": 1}

    async def once(ctx: Context) -> str:
        await ctx.ask_outcome("go", "Go?", bool)
        if not loops["left"]:
            raise ToolError("it has run already")
        loops["left"] -= 1
        return "ran"

    async def fickle(ctx: Context) -> str:
        loops["left"] += 1
        await ctx.ask_outcome(f"name-{loops['left'] // 2}", "Who?", str)
        return "done"

    server = server_with(book, need, leave, nag, trap, survey, unlock, once, fickle, hang, broken)
    server.prompt()(review)
    return server


def outcomes(explored: Explored) -> dict[str, str]:
    """Return the outcome of each path, by its choices."""
    return {str(path): f"{path.outcome}: {path.text}" for path in explored.paths}
