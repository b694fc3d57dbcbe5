"""Registration of functions as tools, with its options."""

import functools
from typing import Any, Final, cast

from mcp_types import Icon

from roundtrip import Server, tool
from tests.interaction.tools_page.rows import ABSENT, ADDED, Json, Make, Row, add, adding


class Multiplier:
    factor = 2

    def __init__(self, factor: int) -> None:
        self.factor = factor

    @tool()
    def by_instance(self, x: int) -> int:
        """Multiply by the factor of this one."""
        return self.factor * x

    @tool(name="by_default")
    @classmethod
    def by_class(cls, x: int) -> int:
        """Multiply by the factor of all."""
        return cls.factor * x

    def plain(self, x: int) -> int:
        return self.factor * x


def by_decorator(server: Server[Any]) -> None:
    @server.tool
    def tool(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    assert tool(1, 2) == 3


def by_name(server: Server[Any]) -> None:
    server.tool("tool")(add)


def described(server: Server[Any]) -> None:
    @server.tool(
        name="tool",
        description="Find books by topic.",
        tags={"search", "catalog"},
        meta={"version": "1.2", "author": "the book team"},
    )
    def find_books_in_the_catalog(topic: str) -> list[str]:
        """Not read, as there is a description."""
        return [topic]


class Adder:
    def __call__(self, x: int) -> int:
        """Add one."""
        return x + 1


HINTS: Final[Json] = {"title": "Add", "readOnlyHint": True, "destructiveHint": False}
ICON: Final[Json] = {"src": "https://example.com/add.png", "mimeType": "image/png", "sizes": ["48x48"]}
X_ALONE: Final[Json] = {
    "inputSchema.properties": {"x": {"title": "X", "type": "integer"}},
    "inputSchema.required": ["x"],
}

REGISTERING = [
    Row(
        says="a decorated function is a tool by its own name, with its docstring and a schema of its parameters",
        make=by_decorator,
        lists={
            "name": "tool",
            "description": "Add two numbers.",
            "inputSchema.type": "object",
            "inputSchema.properties.a.type": "integer",
            "inputSchema.properties.b.type": "integer",
            "inputSchema.properties.b.default": 1,
            "inputSchema.required": ["a"],
        },
        **ADDED,
    ),
    Row(says="the decorator may be given the name alone", make=by_name, **ADDED),
    Row(says="a function may be added without a decorator", make=adding(add, None), tool="add", **ADDED),
    Row(
        says="name and description replace the function's own, tags and metadata are passed on",
        make=described,
        lists={
            "description": "Find books by topic.",
            "_meta.version": "1.2",
            "_meta.author": "the book team",
            "_meta.fastmcp.tags": ["catalog", "search"],
        },
        sends={"topic": "sand"},
        structured={"result": ["sand"]},
    ),
    Row(says="without tags and metadata there is none", make=by_name, lists={"_meta": ABSENT, "annotations": ABSENT}),
    Row(says="a title is passed on", make=adding(add, title="Add numbers"), lists={"title": "Add numbers"}),
    Row(
        says="icons are passed on",
        make=adding(add, icons=[Icon(src=ICON["src"], mime_type="image/png", sizes=["48x48"])]),
        lists={"icons": [ICON]},
    ),
    Row(says="annotations may be a dict", make=adding(add, annotations=HINTS), lists={"annotations": HINTS}),
    Row(
        says="a method noted by the standalone decorator is registered bound, without self",
        make=adding(Multiplier(3).by_instance, None),
        tool="by_instance",
        lists={**X_ALONE, "description": "Multiply by the factor of this one."},
        sends={"x": 5},
        gets="15",
    ),
    Row(
        says="a class method noted by the standalone decorator is registered bound, without cls",
        make=adding(Multiplier.by_class, None),
        tool="by_default",
        lists={**X_ALONE, "description": "Multiply by the factor of all."},
        sends={"x": 5},
        gets="10",
    ),
    Row(says="a lambda is registered under a name", make=adding(lambda: 5), sends={}, gets="5"),
    Row(
        says="a partial keeps what it has filled to itself",
        make=adding(functools.partial(add, b=40)),
        lists={"inputSchema.required": ["a"], "inputSchema.properties.b": ABSENT, "description": "Add two numbers."},
        sends={"a": 2},
        gets="42",
    ),
    Row(
        says="an object that can be called is registered by the name of its class",
        make=adding(Adder(), None),
        tool="Adder",
        lists={**X_ALONE, "description": "Add one."},
        sends={"x": 2},
        gets="3",
    ),
]


def variable_positional(*args: int) -> int:
    return sum(args)


def by_position(first: int, /) -> int:
    return first


def variable_keywords(**kwargs: int) -> int:
    return len(kwargs)


# What is refused when it is registered: with what words.
REFUSED: dict[str, tuple[Make, str]] = {
    "a function with *args": (lambda s: s.tool(variable_positional), r"takes \*args, which no schema can describe"),
    "a function with **kwargs": (
        lambda s: s.tool(variable_keywords),
        r"takes \*\*kwargs, which no schema can describe",
    ),
    "a function with a parameter by position only": (lambda s: s.tool(by_position), "remove the '/'"),
    "a method without its instance": (lambda s: s.tool(Multiplier.plain), "standalone @tool"),
    "an output schema of anything but an object": (
        lambda s: s.tool(output_schema={"type": "array"})(add),
        "'type': 'object' at its root",
    ),
    "a task of an unknown kind": (
        lambda s: s.tool(task=cast("Any", "soon"))(add),
        "task must be True, False, 'required' or after",
    ),
}
