"""An input schema that an author wrote: served unchanged, and used to validate arguments."""

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver.tools import Tool as SdkTool
from pydantic import BaseModel, Field, model_serializer

from roundtrip import InvalidSignature, Resolve, Server, tool
from roundtrip.testing import Era, User
from tests.kit.players import Person, connect, text_of
from tests.kit.shops import Choice, sure

pytestmark = pytest.mark.anyio


BY_HAND: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "where", "type": "object", "properties": {"city": {"type": "string"}}}},
    "properties": {
        "name": {"type": "string", "maxLength": 5, "description": "Who"},
        "address": {"$ref": "#/$defs/address"},
    },
    "required": ["name"],
    "additionalProperties": False,
}


async def greet(name: str, choice: Annotated[Choice, Resolve(sure)], address: dict[str, Any] | None = None) -> str:
    """Greet.

    Args:
        name: Not what the schema says.
    """
    return f"{name} {address} {choice.ok}"


def prepared() -> SdkTool:
    def hello(name: str) -> str:
        return f"hello {name}"

    made = SdkTool.from_function(hello)
    return made.model_copy(update={"parameters": BY_HAND})


async def listed_by(server: Server[Any], era: Era) -> dict[str, Any]:
    async with connect(server, era) as client:
        return (await client.list_tools()).tools[0].input_schema


def hail(name: str) -> str:
    return name


SERVERS: dict[str, Callable[[], Server[Any]]] = {
    "a decorator of the server": lambda: with_tool(greet, input_schema=BY_HAND),
    "the standalone decorator": lambda: with_tool(tool(input_schema=BY_HAND)(hail)),
    "a tool object in the constructor": lambda: Server("shop", tools=[prepared()]),
}


def with_tool(fn: Any, **options: Any) -> Server[Any]:
    server = Server[Any]("shop")
    server.add_tool(fn, **options)
    return server


async def test_schema_is_served_to_the_letter() -> None:
    assert {how: await listed_by(make(), Era.RETRY) for how, make in SERVERS.items()} == dict.fromkeys(SERVERS, BY_HAND)


async def test_schema_is_copied_when_the_tool_is_registered() -> None:
    mine = {"type": "object", "properties": {"name": {"type": "string"}}}
    server = with_tool(greet, input_schema=mine)
    mine.clear()
    assert "properties" in await listed_by(server, Era.RETRY)


async def test_arguments_are_held_against_the_schema(era: Era) -> None:
    async with connect(with_tool(greet, input_schema=BY_HAND), era, Person({"ok": True})) as client:
        told = text_of(await client.call_tool("greet", {"name": "Augusta"}))
        assert "too long" in told
        assert "name" in told
        unknown = await client.call_tool("greet", {"name": "Ada", "other": 1})
        assert unknown.is_error
        fits = await client.call_tool("greet", {"name": "Ada", "address": {"city": "London"}})
    assert text_of(fits) == "Ada {'city': 'London'} True"


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string"}, "must be a JSON schema of an object"),
        ({"type": "object", "properties": {"name": {"type": "strin"}}}, "cannot be checked"),
        ({"type": "object", "properties": {"title": {}}, "additionalProperties": False}, "must allow 'name'"),
    ],
)
def test_schema_that_cannot_work_is_rejected(schema: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSignature, match=told):
        Server[Any]("shop").tool(input_schema=schema)(greet)


async def test_header_annotations_of_a_schema_count() -> None:
    server = Server[Any]("shop")
    schema: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string", "x-mcp-header": "Name"}}}
    server.tool(input_schema=schema)(greet)
    schema_of = server.internals.low_level.get_tool_input_schema
    assert schema_of is not None
    assert schema_of("greet") == schema
    wrong: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string", "x-mcp-header": "a b"}}}
    with pytest.raises(InvalidSignature, match="x-mcp-header"):
        server.tool("other", input_schema=wrong)(greet)


# Arguments and results that break the rules of their types: each fails its own call.


class Shouted(BaseModel):
    x: int

    @model_serializer
    def shout(self):
        return {"x": f"{self.x}!"}


def returning() -> Server[Any]:
    server = Server[Any]("returning")

    @server.tool
    def numbers() -> list[float]:
        return [float("inf")]

    @server.tool
    def shouted() -> Shouted:
        return Shouted(x=1)

    return server


async def test_result_violating_its_own_schema_is_a_tool_failure(era: Era) -> None:
    # The client would raise, and the model never hear of it.
    assert "JSON cannot represent inf" in (await User(returning(), era=era).call("numbers")).text
    assert (await User(returning(), era=era).call("shouted")).text.endswith("; correct the result or the schema")


@pytest.mark.parametrize("strict", [False, True])
async def test_arguments_that_would_take_for_ever_to_check_are_rejected(strict: bool) -> None:
    server = Server[Any]("checked", strict_input_validation=strict)

    @server.tool
    def matched(x: Annotated[str, Field(pattern=r"^(a+)+$")]) -> str:
        return x

    @server.tool
    def counted(x: list[int]) -> int:
        return len(x)

    assert "pattern" in (await User(server).call("matched", {"x": "a" * 50 + "!"})).text
    assert len((await User(server).call("counted", {"x": ["a"] * 10_000})).text) < 3000
