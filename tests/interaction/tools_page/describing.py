"""Descriptions of tools and parameters for clients, and the effects of constraints."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from roundtrip import Resolve
from tests.interaction.tools_page.rows import ABSENT, Json, Row, adding


def google(url: str, fit: bool = False, width: int = 800) -> str:
    """Resize an image.

    It is kept for an hour.

    Args:
        url: Where the image is.
        fit: Whether to keep
            its proportions.
        width: Its new width.

    Returns:
        Where the result is.

    Raises:
        ValueError: It is no image.
    """
    return f"{url} {fit} {width}"


def half_said(
    url: Annotated[str, "By Annotated."], fit: bool = Field(False, description="By Field."), n: int = 1
) -> str:
    """Resize an image.

    Args:
        url: By the docstring.
        fit: By the docstring.
        n: By the docstring.
    """
    return f"{url} {fit} {n}"


def fields_in_annotations(
    query: Annotated[str, Field(description="What to look for", min_length=2, max_length=5, pattern="^[a-z]+$")],
    limit: Annotated[int, Field(description="How many", ge=1, le=100)] = 10,
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5,
    words: Annotated[Sequence[str], Field(min_length=1, max_length=2)] = ("a",),
    order: Annotated[Literal["up", "down"], Field(description="Which way")] = "up",
) -> str:
    return f"{query} {limit} {share} {list(words)} {order}"


def fields_as_defaults(
    query: str = Field(description="What to look for", min_length=2, max_length=5, pattern="^[a-z]+$"),
    limit: int = Field(10, description="How many", ge=1, le=100),
    share: float = Field(default=0.5, gt=0, lt=1),
    words: Sequence[str] = Field(default=("a",), min_length=1, max_length=2),
    order: Literal["up", "down"] = Field(default="up", description="Which way"),
) -> str:
    return f"{query} {limit} {share} {list(words)} {order}"


CONSTRAINED: Json = {
    "inputSchema.required": ["query"],
    "inputSchema.properties.query.description": "What to look for",
    "inputSchema.properties.query.minLength": 2,
    "inputSchema.properties.query.maxLength": 5,
    "inputSchema.properties.query.pattern": "^[a-z]+$",
    "inputSchema.properties.limit.description": "How many",
    "inputSchema.properties.limit.minimum": 1,
    "inputSchema.properties.limit.maximum": 100,
    "inputSchema.properties.limit.default": 10,
    "inputSchema.properties.share.exclusiveMinimum": 0,
    "inputSchema.properties.share.exclusiveMaximum": 1,
    "inputSchema.properties.words.minItems": 1,
    "inputSchema.properties.words.maxItems": 2,
    "inputSchema.properties.order.description": "Which way",
    "inputSchema.properties.order.enum": ["up", "down"],
}
BROKEN_CONSTRAINTS: dict[str, Json] = {
    "ge": {"query": "ab", "limit": 0},
    "being required": {"limit": 3},
}


def injected() -> str:
    return "user 123"


def with_hidden(detail: str, user: Annotated[str, Resolve(injected)]) -> str:
    return f"{detail} of {user}"


DESCRIBING = [
    Row(
        says="a docstring gives the description and those of the parameters, and no more",
        make=adding(google),
        lists={
            "description": "Resize an image.\n\nIt is kept for an hour.",
            "inputSchema.properties.url.description": "Where the image is.",
            "inputSchema.properties.fit.description": "Whether to keep its proportions.",
            "inputSchema.properties.width.description": "Its new width.",
        },
        sends={"url": "a.png"},
        gets="a.png False 800",
    ),
    Row(
        says="what is said by Annotated or Field goes before the docstring, which fills the gaps",
        make=adding(half_said),
        lists={
            "inputSchema.properties.url.description": "By Annotated.",
            "inputSchema.properties.fit.description": "By Field.",
            "inputSchema.properties.n.description": "By the docstring.",
        },
    ),
    *(
        Row(
            says=f"{fn.__name__.replace('_', ' ')} describe, constrain and give defaults",
            make=adding(fn),
            lists=CONSTRAINED,
            sends={"query": "ab"},
            gets="ab 10 0.5 ['a'] up",
        )
        for fn in (fields_in_annotations, fields_as_defaults)
    ),
    *(
        Row(
            says=f"arguments against {constraint} are refused",
            make=adding(fields_in_annotations),
            sends=arguments,
            fails="validation error",
        )
        for constraint, arguments in BROKEN_CONSTRAINTS.items()
    ),
    Row(
        says="what is injected is in no schema, and a client cannot set it",
        make=adding(with_hidden),
        lists={"inputSchema.properties.user": ABSENT, "inputSchema.required": ["detail"]},
        sends={"detail": "name", "user": "somebody else"},
        gets="name of user 123",
    ),
]
