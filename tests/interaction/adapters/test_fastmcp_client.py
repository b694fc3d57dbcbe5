"""FastMCP's own client with a roundtrip server: it lists, calls, and makes Python objects of the results."""

import logging
import re
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any, Final, Literal

import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError as ClientToolError
from pydantic import BaseModel
from typing_extensions import TypedDict

from roundtrip import Context, Elicit, Image, Resolve, Server
from roundtrip.testing import Era, served

pytestmark = pytest.mark.anyio

Connected = Callable[..., AbstractAsyncContextManager[Client[Any]]]
PROTOCOLS: Final = {Era.RETRY: "2026-07-28", Era.LIVE: "2025-11-25"}


@pytest.fixture(params=["memory", "http"])
def connected(request: pytest.FixtureRequest, era: Era) -> Connected:
    """Connect FastMCP's client to a server, on either era, in memory or over HTTP."""

    @asynccontextmanager
    async def connect(server: Server[Any], **options: Any) -> AsyncGenerator[Client[Any]]:
        if request.param == "memory":
            async with Client[Any](server, mode=era.value, **options) as client:
                yield client
        else:
            async with served(server) as url, Client[Any](url, mode=era.value, **options) as client:
                yield client

    return connect


class Color(Enum):
    RED = "red"


class Author(BaseModel):
    name: str
    born: date


class Book(BaseModel):
    title: str
    author: Author
    tags: list[str] = []
    price: float | None = None


class Part(BaseModel):
    name: str
    parts: list["Part"] = []


@dataclass
class Point:
    x: int
    y: float = 0.5


class Pair(TypedDict):
    left: int
    right: str


HERBERT: Final = Author(name="Herbert", born=date(1920, 10, 8))
DUNE: Final = Book(title="Dune", author=HERBERT, tags=["sand"])
NOON: Final = datetime(2026, 1, 2, 12, tzinfo=UTC)

# What a tool returns by which annotation.
RETURNED: dict[str, tuple[Any, Any]] = {
    "an int": (int, 3),
    "a str": (str, "3"),
    "a bool": (bool, False),
    "a float": (float, 2.5),
    "None": (int | None, None),
    "a union": (str | int, 4),
    "a literal": (Literal["a", "b"], "b"),
    "a list": (list[int], [1, 2]),
    "a list of lists": (list[list[str]], [["a"], []]),
    "a tuple": (tuple[int, str], (1, "a")),
    "a dict": (dict[str, Any], {"a": [1, None, {"b": "c"}]}),
    "an empty dict": (dict[str, int], {}),
    "a dict without annotation": (Any, {"result": 1}),
    "a datetime": (datetime, NOON),
    "a list of datetimes": (list[datetime], [NOON]),
    "an enum": (Color, Color.RED),
    "a set": (set[int], {1}),
    "a model": (Book, DUNE),
    "a model or None": (Book | None, DUNE),
    "a model that holds itself": (Part, Part(name="car", parts=[Part(name="wheel")])),
    "a dataclass": (Point, Point(1)),
    "a TypedDict": (Pair, {"left": 1, "right": "a"}),
    "a list of models": (list[Author], [HERBERT]),
    "nothing": (None, None),
    "a model without annotation": (Any, DUNE),
    "an image": (Image, Image(data=b"x", format="png")),
}


def returning(annotation: Any, value: Any) -> Callable[[], Any]:
    def give() -> Any:
        return value

    give.__annotations__["return"] = annotation
    return give


def nameless(data: Any) -> str:
    """Return a value's content without the names of classes, which FastMCP's server omits from its schemas."""
    return re.sub(r"\b[A-Z]\w*\(", "(", repr(data))


async def data_of(server: Server[Any] | FastMCP[Any], era: Era) -> dict[str, Any]:
    """Return what a client reads from each tool of a server."""
    async with Client[Any](server, mode=era.value) as client:
        return {tool.name: (await client.call_tool(tool.name)).data for tool in await client.list_tools()}


async def test_client_lists_tools_with_tags_versions_and_schemas(connected: Connected, era: Era) -> None:
    server = Server[Any]("shop")

    @server.tool(tags={"books", "public"}, annotations={"readOnlyHint": True}, meta={"team": "a"}, version="1.2")
    def find(title: str, limit: int = 10) -> list[Book]:
        """Find books."""
        return [DUNE] * limit if title else []

    async with connected(server) as client:
        assert client.protocol_version == PROTOCOLS[era]
        (tool,) = await client.list_tools()
    assert (tool.name, tool.description) == ("find", "Find books.")
    assert tool.input_schema["required"] == ["title"]
    assert tool.output_schema is not None
    assert tool.output_schema["x-fastmcp-wrap-result"] is True
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint is True
    assert tool.meta == {
        "team": "a",
        "fastmcp": {"tags": ["books", "public"], "version": "1.2", "versions": ["1.2"]},
    }


async def test_fastmcp_client_reads_results_like_those_of_fastmcp_servers(era: Era) -> None:
    ours, theirs = Server[Any]("shop"), FastMCP[Any]("shop")
    for what, (annotation, value) in RETURNED.items():
        ours.add_tool(returning(annotation, value), name=what.replace(" ", "_"))
        theirs.tool(returning(annotation, value), name=what.replace(" ", "_"))
    read = [await data_of(server, era) for server in (ours, theirs)]
    one, other = ({name: nameless(data) for name, data in found.items()} for found in read)
    assert one == other


async def test_client_calls_the_version_it_names(connected: Connected) -> None:
    server = Server[Any]("shop")
    for version in ("1.0", "2.0"):
        server.tool("quote", version=version)(returning(str, f"by {version}"))
    async with connected(server) as client:
        (tool,) = await client.list_tools()
        assert tool.meta == {"fastmcp": {"version": "2.0", "versions": ["2.0", "1.0"]}}
        assert (await client.call_tool("quote")).data == "by 2.0"
        assert (await client.call_tool("quote", version="1.0")).data == "by 1.0"
        with pytest.raises(ClientToolError, match="Unknown tool: quote"):
            await client.call_tool("quote", version="3.0")


async def test_client_answers_questions(connected: Connected) -> None:
    server = Server[Any]("shop")

    async def how_many(title: str) -> Elicit[int]:
        return Elicit(f"How many copies of {title}?", int)

    @server.tool
    async def order(title: str, copies: Annotated[int, Resolve(how_many)], ctx: Context) -> Book:
        sure = await ctx.ask("sure", f"{copies}, really?", bool)
        return Book(title=title, author=HERBERT, tags=[str(copies), str(sure)])

    async def answer(message: str, response_type: Any, params: Any, context: Any) -> Any:
        return {"value": True if message.endswith("really?") else 3}

    async with connected(server, elicitation_handler=answer) as client:
        book = (await client.call_tool("order", {"title": "Dune"})).data
    assert (book.title, book.tags) == ("Dune", ["3", "True"])


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Generator[None]:
    """It logs, and raises nothing, when it cannot make anything of a result."""
    own = logging.getLogger("fastmcp.client")
    own.addHandler(caplog.handler)
    yield
    own.removeHandler(caplog.handler)
    records = caplog.get_records("call")
    assert [record.message for record in records if "Error parsing structured content" in record.message] == []
