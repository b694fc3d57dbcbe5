"""Arguments as the body receives them: coerced or exact, and JSON text parsed only for types that need it."""

import dataclasses
import datetime
import enum
import pathlib
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import product
from typing import Annotated, Any, Literal, NewType, cast

import pytest
from mcp.server.mcpserver.utilities.func_metadata import func_metadata
from pydantic import BaseModel, Field, Json, RootModel, SecretStr, ValidationError, create_model
from typing_extensions import TypeAliasType, TypedDict

from roundtrip.tools.arguments import ArgumentReader, mistakes_in
from roundtrip.tools.schemas.checks import Check, SchemaMismatch, checker
from tests.kit.raised import raised
from tests.kit.tables import check_each


class Point(BaseModel):
    x: int = 0


class Numbers(RootModel[list[int]]):
    pass


@dataclasses.dataclass
class Pair:
    x: int = 0


class Record(TypedDict, total=False):
    x: int


class Color(enum.Enum):
    RED = "red"


Ids = TypeAliasType("Ids", list[int])
MaybeText = TypeAliasType("MaybeText", str | None)
PointId = NewType("PointId", Point)
Name = NewType("Name", str)


def reader_for(
    tool: Callable[..., Any], *, strict: bool = False, hidden: Sequence[str] = (), check: Check | None = None
) -> ArgumentReader:
    metadata = func_metadata(tool, skip_names=hidden, structured_output=False)
    if strict:
        check = checker(metadata.arg_model.model_json_schema(by_alias=True))
    return ArgumentReader(metadata, check)


def read(annotation: Any, value: object, *, strict: bool = False) -> Any:
    def tool(a: Any) -> None: ...

    tool.__annotations__["a"] = annotation
    return reader_for(tool, strict=strict).read({"a": value})["a"]


# (type, what is sent, what a lenient server makes of it)
COERCED = [
    (int, "10", 10),
    (float, "3.14", 3.14),
    (bool, "true", True),
    (list[int], ["1", "2"], [1, 2]),
    (Point, {"x": "1"}, Point(x=1)),
]
EXACT = [
    (int, 10, 10),
    (bool, True, True),
    (list[int], [1, 2], [1, 2]),
    (Point, {"x": 1}, Point(x=1)),
    (Color, "red", Color.RED),
    (datetime.date, "2026-07-28", datetime.date(2026, 7, 28)),
    (bytes, "YQ==", b"YQ=="),
]


def test_compatible_value_is_coerced_and_rejected_in_strict_mode() -> None:
    def check(annotation: Any, sent: object, received: object) -> None:
        got = read(annotation, sent)
        assert (got, type(got)) == (received, type(received))
        error = raised(read, annotation, sent, strict=True)
        assert isinstance(error, SchemaMismatch)
        assert str(error).startswith("a")

    check_each(COERCED, check)


def test_a_value_of_the_type_is_taken_in_both_modes() -> None:
    def check(annotation: Any, sent: object, received: object) -> None:
        assert read(annotation, sent) == received
        assert read(annotation, sent, strict=True) == received

    check_each(EXACT, check)


@dataclasses.dataclass(frozen=True, slots=True)
class Lazy:
    items: Iterable[int]


def test_iterators_are_read_once_and_in_full() -> None:
    lazy: list[Any] = [Iterable[int], Generator[int, None, None] | None, list[Iterable[int]], dict[str, Iterable[int]]]
    sent: list[Any] = [["1"], ["1"], [["1"]], {"x": ["1"]}]
    assert [read(annotation, value) for annotation, value in zip(lazy, sent, strict=True)] == [
        [1],
        [1],
        [[1]],
        {"x": [1]},
    ]
    assert read(tuple[Lazy, ...], [{"items": ["1"]}])[0] == Lazy([1])
    assert read(create_model("Model", items=(Iterable[int], ...)), {"items": ["1"]}).items == [1]
    assert isinstance(raised(read, Iterable[int], ["x"]), ValidationError)


MODELS: list[Any] = [
    Point,
    Point | None,
    Point | str,
    Pair,
    Record,
    Annotated[Point, Field(description="A point.")],
    PointId,
    RootModel[dict[str, int]],
    Numbers,
]


def test_model_argument_is_an_object_and_never_json_text() -> None:
    def check(annotation: Any, text: str) -> None:
        if str in getattr(annotation, "__args__", ()):
            assert read(annotation, text) == text
        else:
            assert isinstance(raised(read, annotation, text), ValidationError)

    check_each(product(MODELS, ('{"x": 1}', "[1]")), check)


TEXTUAL: list[Any] = [
    str,
    str | None,
    str | int | None,
    MaybeText,
    Name,
    str | list[int],
    dict[str, int] | str | None,
    list[int] | Name,
]


def test_a_text_stays_the_text_it_is() -> None:
    texts = ("[1, 2]", '{"x": 1}', "null", "true", "3")
    assert [row for row in product(TEXTUAL, texts) if read(*row) != row[1]] == []
    bare = reader_for(cast("Any", lambda a: None))  # pyright: ignore[reportUnknownLambdaType]
    assert [text for text in texts if bare.read({"a": text}) != {"a": text}] == []


RECEIVED: list[tuple[Any, object, object]] = [
    (list[int], "[1, 2]", [1, 2]),
    (list[str] | None, '["a"]', ["a"]),
    (dict[str, int], '{"x": 1}', {"x": 1}),
    (tuple[int, str], '[1, "a"]', (1, "a")),
    (Sequence[int], "[1]", [1]),
    (Ids, "[1]", [1]),
    (Any, "[1]", [1]),
    (Any, '"a"', '"a"'),
    (int | None, "null", None),
    # Other types of texts get the text as well.
    (bytes | None, "[1]", b"[1]"),
    (pathlib.Path | None, "[1]", pathlib.Path("[1]")),
    (SecretStr | None, "null", SecretStr("null")),
    (Literal["null", "[]"] | None, "null", "null"),
    (Json[list[int]], "[1]", [1]),
    # Models come as objects.
    (Point | None, {"x": 1}, Point(x=1)),
]


def test_json_text_is_read_for_the_types_that_need_it() -> None:
    def check(annotation: Any, sent: object, received: object) -> None:
        assert read(annotation, sent) == received

    check_each(RECEIVED, check)


def test_json_text_is_read_only_in_place_of_values() -> None:
    def check(annotation: Any, text: str) -> None:
        assert read(Any, text) == text
        assert isinstance(raised(read, annotation, text), ValidationError)

    halves = ('{"name": "\\ud800"}', '{"\\ud800": 1}')
    unreadable = ('{"a":' * 240 + "1" + "}" * 240, "[NaN]", f"[{'1' * 5000}]")
    check_each(((dict[str, Any], text) for text in (*halves, *unreadable)), check)
    check_each(((list[int], text) for text in ("\ud800", '["\ud800"]', "\ud800[]")), check)


def test_alias_is_for_clients_and_names_for_bodies() -> None:
    def tool(at: Annotated[list[int], Field(alias="position")], copy: int = 0, *, json: str = "") -> None: ...

    reader = reader_for(tool)

    assert reader.read({"position": "[1]", "copy": 2}) == {"at": [1], "copy": 2, "json": ""}
    assert {name: reader.names[name] for name in ("at", "position", "copy")} == {
        "at": "at",
        "position": "at",
        "copy": "copy",
    }


def test_long_list_of_mistakes_is_truncated() -> None:
    with pytest.raises(ValidationError) as few:
        read(list[int], ["a"])
    assert mistakes_in(few.value) == str(few.value)
    with pytest.raises(ValidationError) as many:
        read(list[int], ["a"] * 1000)
    text = mistakes_in(many.value)
    assert text.startswith("1000 validation errors for")
    assert len(text) < 3000


def test_nothing_is_read_as_json_text_in_strict_mode() -> None:
    def check(annotation: Any, text: str) -> None:
        assert isinstance(raised(read, annotation, text, strict=True), SchemaMismatch)

    kinds = (list[int], dict[str, int], int | None, tuple[int, ...])
    check_each(product(kinds, ("[1]", '{"x": 1}', "null")), check)


def test_a_check_sees_the_arguments_as_they_were_sent() -> None:
    seen: list[object] = []

    def tool(ids: list[int], note: str = "", *, at: Annotated[int, Field(alias="position")] = 0) -> None: ...

    reader = reader_for(tool, check=seen.append)
    sent = {"ids": ["1"], "position": "3", "unknown": "[1]"}

    assert reader.read(sent) == {"ids": [1], "note": "", "at": 3}
    assert seen == [sent]
    assert seen[0] is sent


@pytest.mark.parametrize("strict", [False, True])
def test_missing_arguments_get_defaults_and_hidden_ones_are_ignored(strict: bool) -> None:
    def tool(needed: int, other: str | None = None, hidden: int = 0) -> None: ...

    reader = reader_for(tool, strict=strict, hidden=["hidden"])

    for more in ({}, {"other": None}, {"hidden": "[1]"}):
        assert reader.read({"needed": 1, **more}) == {"needed": 1, "other": None}
    with pytest.raises(SchemaMismatch if strict else ValidationError, match="needed"):
        reader.read({})
