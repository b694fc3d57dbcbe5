"""A row of the page about tools: how a tool is made, and what a client reads, sends and gets back."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
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


def at(place: str, value: Json) -> Any:
    """Return the value of a JSON object at a dotted place."""
    first, dot, rest = place.partition(".")
    inner = value.get(first, ABSENT)
    if not dot or inner is ABSENT:
        return inner
    return at(rest, cast("Json", inner)) if isinstance(inner, dict) else ABSENT


async def check(row: Row, era: Era) -> None:
    """Play a row on a server of its own.

    Raises:
        AssertionError: A client found something else than the row says.
    """
    server = Server[Any]("page", **row.options)
    row.make(server)
    async with connect(server, era) as client:
        tools = {found.name: found for found in (await client.list_tools()).tools}
        if row.lists is HIDDEN:
            _agree(row.tool in tools, False)
        else:
            listed = tools[row.tool].model_dump(mode="json", by_alias=True, exclude_none=True)
            _agree({place: at(place, listed) for place in row.lists}, row.lists)
        if row.sends is None:
            return
        result = await client.call_tool(row.tool, row.sends, meta=row.meta)
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    _agree((result.is_error, blocks), (bool(row.fails), blocks))
    if row.fails and not re.search(row.fails, text_of(result)):
        raise AssertionError(f"found {text_of(result)!r}, expected {row.fails!r}")
    if row.gets is not UNSAID:
        _agree(blocks, [text(row.gets)] if isinstance(row.gets, str) else row.gets)
    if row.structured is not UNSAID:
        _agree(result.structured_content, row.structured)
    _agree({key: (result.meta or {}).get(key) for key in row.result_meta}, row.result_meta)


def _agree(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


async def faults(rows: Iterable[Row], era: Era) -> dict[str, str]:
    """Return what is wrong with each row that does not hold."""
    wrong: dict[str, str] = {}
    for row in rows:
        try:
            await check(row, era)
        except Exception as error:  # noqa: BLE001 - returned
            wrong[row.says] = f"{type(error).__name__}: {error}"
    return wrong


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
