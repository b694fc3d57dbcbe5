"""Arguments by type: accepted values, and the values that the function receives."""

import datetime
import enum
import uuid
from typing import Any, Final

from pydantic import BaseModel

from tests.interaction.tools_page.rows import ABSENT, ADDED, Json, Row, add, adding, taking


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class User(BaseModel):
    name: str
    age: int = 3


class Family(BaseModel):
    mother: User
    father: User | None = None


def takes(what: str, annotation: Any, schema: Any, sent: Any, received: Any) -> Row:
    return Row(
        says=f"{what} comes as JSON and is received as what it is",
        make=taking(annotation),
        lists={"inputSchema.properties.value": {"title": "Value", **schema}, "inputSchema.required": ["value"]},
        sends={"value": sent},
        gets=repr(received),
    )


def refuses(what: str, annotation: Any, sent: Any) -> Row:
    return Row(says=f"{what} is refused", make=taking(annotation), sends={"value": sent}, fails="validation error")


NOON: Final = datetime.datetime(2026, 1, 2, 12)  # noqa: DTZ001 - naive, as it is sent
ID: Final = uuid.UUID("12345678-1234-5678-1234-567812345678")
USER_SCHEMA: Final[Json] = {
    "type": "object",
    "title": "User",
    "properties": {
        "name": {"title": "Name", "type": "string"},
        "age": {"title": "Age", "type": "integer", "default": 3},
    },
    "required": ["name"],
}
TEXT_OR_INTEGER: Final[Json] = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
NUMBER_OR_NULL: Final[Json] = {"anyOf": [{"type": "number"}, {"type": "null"}]}

TYPES = [
    takes("an int", int, {"type": "integer"}, 3, 3),
    takes("bytes", bytes, {"type": "string", "format": "binary"}, "aGk=", b"aGk="),
    takes("a datetime", datetime.datetime, {"type": "string", "format": "date-time"}, "2026-01-02T12:00:00", NOON),
    takes("a list", list[str], {"type": "array", "items": {"type": "string"}}, ["a"], ["a"]),
    takes("a set", set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [2, 2], {2}),
    takes("an optional float", float | None, NUMBER_OR_NULL, 2.5, 2.5),
    takes("a text for a union with int", str | int, TEXT_OR_INTEGER, "7", "7"),
    takes("an enum", Color, {"title": "Color", "enum": ["red", "blue"], "type": "string"}, "red", Color.RED),
    takes("a UUID", uuid.UUID, {"type": "string", "format": "uuid"}, str(ID), ID),
    takes("a model", User, USER_SCHEMA, {"name": "Ada", "age": 4}, User(name="Ada", age=4)),
    refuses("an enum by its name", Color, "RED"),
    refuses("a model as JSON text", User, '{"name": "Ada"}'),
    Row(
        says="a parameter with a default may be left out",
        make=taking(float | None, None),
        lists={"inputSchema.required": ABSENT, "inputSchema.properties.value.default": None},
        sends={},
        gets="None",
    ),
    Row(
        says="a parameter without a default is required, even where it may be null",
        make=taking(float | None),
        lists={"inputSchema.required": ["value"]},
        sends={},
        fails="Field required",
    ),
    Row(
        says="models are written out in schemas instead of referred to",
        make=taking(Family),
        lists={
            "inputSchema.$defs": ABSENT,
            "inputSchema.properties.value.properties.mother": USER_SCHEMA,
            "inputSchema.properties.value.properties.father.anyOf": [USER_SCHEMA, {"type": "null"}],
        },
        sends={"value": {"mother": {"name": "Ada"}}},
        gets=repr(Family(mother=User(name="Ada"))),
    ),
    Row(
        says="a server may keep the references of its schemas",
        make=taking(Family),
        options={"dereference_schemas": False},
        lists={
            "inputSchema.$defs.User": USER_SCHEMA,
            "inputSchema.$defs.Family.properties.mother": {"$ref": "#/$defs/User"},
            "inputSchema.properties.value": {"$ref": "#/$defs/Family"},
        },
        sends={"value": {"mother": {"name": "Ada"}}},
        gets=repr(Family(mother=User(name="Ada"))),
    ),
]

STRICT: Final[Json] = {"strict_input_validation": True}

VALIDATION = [
    Row(
        says="a text in the field of a model that is an int is coerced",
        make=taking(User),
        sends={"value": {"name": "Ada", "age": "4"}},
        gets=repr(User(name="Ada", age=4)),
    ),
    Row(
        says="a text that spells an int is refused by a strict server",
        make=taking(int),
        options=STRICT,
        sends={"value": "10"},
        fails="is not of type",
    ),
    *(
        Row(
            says=f"a text that is no int is refused by a server with {options}",
            make=taking(int),
            options=options,
            sends={"value": "abc"},
            fails="integer",
        )
        for options in ({}, STRICT)
    ),
    Row(
        says="a strict server takes what fits",
        make=adding(add),
        options=STRICT,
        **ADDED,
    ),
]
