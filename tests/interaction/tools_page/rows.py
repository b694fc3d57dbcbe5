"""A row of the page about tools: how a tool is made, and what a client reads, sends and gets back."""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from roundtrip import Server
from roundtrip.testing import Era
from tests.kit.players import connect, text_of

Json = dict[str, Any]
Make = Callable[[Server[Any]], object]

UNSAID: Final = object()
"""Where a row says nothing."""
HIDDEN: Final = object()
"""For `lists`: the tool is not in the list."""
ABSENT: Final = object()
"""For a value in `lists`: that place must be empty."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One behavior. The name of the tool is `tool`, unless a row has another."""

    says: str
    make: Make
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For the server."""
    tool: str = "tool"
    lists: Any = field(default_factory=dict[str, Any])
    """Values in the listed tool by their dotted places, or HIDDEN."""
    sends: Json | None = None
    """Arguments of a call; None makes no call."""
    meta: Any = None
    """Metadata of the request."""
    gets: Any = UNSAID
    """The text of the only block, or all blocks as they are on the wire."""
    structured: Any = UNSAID
    """The structured content; None for none."""
    result_meta: Json = field(default_factory=dict[str, Any])
    fails: Any = False
    """A pattern found in the text of the failed result."""

    @property
    def expects_something(self) -> bool:
        """Return True if a client must find something in the list, or must receive something."""
        got = self.sends is not None and bool(
            self.fails or self.result_meta or self.gets is not UNSAID or self.structured is not UNSAID
        )
        return got or bool(self.lists)


def at(place: str, value: Json) -> Any:
    """Return the value of a JSON object at a dotted place."""
    first, dot, rest = place.partition(".")
    inner = value.get(first, ABSENT)
    if not dot or inner is ABSENT:
        return inner
    return at(rest, cast("Json", inner)) if isinstance(inner, dict) else ABSENT


async def check(row: Row, era: Era) -> None:
    server = Server[Any]("page", **row.options)
    row.make(server)
    async with connect(server, era) as client:
        tools = {found.name: found for found in (await client.list_tools()).tools}
        if row.lists is HIDDEN:
            assert row.tool not in tools
        else:
            listed = tools[row.tool].model_dump(mode="json", by_alias=True, exclude_none=True)
            assert {place: at(place, listed) for place in row.lists} == row.lists
        if row.sends is None:
            return
        result = await client.call_tool(row.tool, row.sends, meta=row.meta)
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    assert result.is_error is bool(row.fails), blocks
    if row.fails:
        assert re.search(row.fails, text_of(result))
    if row.gets is not UNSAID:
        assert blocks == ([text(row.gets)] if isinstance(row.gets, str) else row.gets)
    if row.structured is not UNSAID:
        assert result.structured_content == row.structured
    assert {key: (result.meta or {}).get(key) for key in row.result_meta} == row.result_meta


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def resource(data: bytes, uri: str, mime_type: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "blob": encoded(data)}}


# Tools to make rows of.


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADDED: Final[Json] = {"sends": {"a": 2, "b": 3}, "gets": "5", "structured": {"result": 5}}
"""What a row says that calls `add`."""


def adding(fn: Callable[..., Any], name: str | None = "tool", **options: Any) -> Make:
    """Register a function as a tool, by its own name if `name` is None."""
    return lambda server: server.add_tool(fn, name, **options)


def taking(annotation: Any, *default: Any) -> Make:
    """Make a tool with one parameter, which returns a text of its argument."""

    def tool(value: Any) -> str:
        return repr(value)

    tool.__annotations__["value"] = annotation
    tool.__defaults__ = default or None
    return adding(tool)


def returning(value: Any, annotation: Any = UNSAID, **options: Any) -> Make:
    """Make a tool that returns a value, with a return annotation or without."""

    def tool() -> Any:
        return value

    if annotation is UNSAID:
        del tool.__annotations__["return"]
    else:
        tool.__annotations__["return"] = annotation
    return adding(tool, **options)


def computing(make: Callable[[], Any], **options: Any) -> Make:
    """Make a tool that computes its result in each call."""

    def tool() -> Any:
        return make()

    del tool.__annotations__["return"]
    return adding(tool, **options)
