"""A server with a tool for each kind of question, and of result."""

import base64
from enum import StrEnum
from typing import Annotated, Literal

import anyio
from mcp_types import ContentBlock, EmbeddedResource, ResourceLink, TextContent, TextResourceContents
from pydantic import BaseModel, Field

from roundtrip import Audio, Context, Elicit, ElicitUrl, Image, Resolve, Sample, Server, ToolError
from roundtrip.ledger import MemoryLedger

server = Server("cinema", ledger=MemoryLedger())

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="


class Genre(StrEnum):
    DRAMA = "drama"
    COMEDY = "comedy"


class Snacks(BaseModel):
    wanted: list[str] = Field(
        description="What to bring", json_schema_extra={"items": {"type": "string", "enum": ["popcorn", "tea", "nuts"]}}
    )
    note: str = ""


Row = Literal["front", "back"]
Day = Literal["today", "tomorrow"]


def choose_seat(film: str) -> Elicit[Row]:
    return Elicit(f"Which row for {film}?", Row)


@server.tool(title="Book seats")
async def book(film: str, row: Annotated[Row, Resolve(choose_seat)], ctx: Context, seats: int = 2) -> str:
    """Book seats for a film."""
    await ctx.report_progress(1, 2, "row is known")
    await ctx.info("asking for snacks")
    snacks = await ctx.ask("snacks", "Any snacks?", Snacks)
    return f"{seats} seats for {film}, {row}, with {', '.join(snacks.wanted)}"


@server.tool(confirm="Delete {name}?")
def delete(name: str = "all") -> str:
    """Delete a film."""
    return f"deleted {name}"


@server.tool()
async def review(ctx: Context) -> str:
    """Ask twice, and let the user look at both answers."""
    day = await ctx.ask("day", "Which day?", Day)
    await ctx.review("check", "Is this right?", of=["day"])
    return f"on {day}"


@server.tool()
async def pay(ctx: Context) -> str:
    """Send the user to a page."""
    return f"{await ctx.ask_outcome('paid', ElicitUrl('Pay here', 'https://pay.example/1'))}"


@server.tool()
async def suggest(ctx: Context) -> str:
    """Ask the client's model."""
    return f"model: {await ctx.ask('film', Sample('Which film?', max_tokens=50))}"


@server.tool(task=True)
async def render(ctx: Context) -> str:
    """Run as a task."""
    size = await ctx.ask("size", "How large?", int)
    return f"rendered at {size}"


@server.tool()
def search(
    genre: Genre, year: int | None = None, tags: list[str] | None = None, exact: bool = False
) -> dict[str, object]:
    """Search for films."""
    return {"genre": genre.value, "year": year, "tags": tags, "exact": exact}


@server.tool()
def media() -> list[ContentBlock]:
    """Return one of each kind."""
    return [
        TextContent(text="a text"),
        Image(data=base64.b64decode(PIXEL), format="png").to_image_content(),
        Audio(data=base64.b64decode(SILENCE), format="wav").to_audio_content(),
        EmbeddedResource(resource=TextResourceContents(uri="file:///../../etc/notes.txt", text="a file")),
        ResourceLink(name="a link", uri="https://films.example/1"),
        ResourceLink(name="no link", uri="javascript:alert(1)"),
    ]


@server.tool()
async def wait() -> str:
    """Run until it is stopped."""
    await anyio.sleep_forever()
    return "never"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("the film is sold out")
