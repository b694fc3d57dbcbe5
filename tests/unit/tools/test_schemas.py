"""Schemas of tools: references replaced, descriptions added, and values checked."""

import copy
from collections.abc import Callable
from typing import Annotated, Any, ForwardRef, Literal, Union, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, TypeAdapter, create_model

from roundtrip.tools.registered import with_descriptions
from roundtrip.tools.schemas.checks import SchemaMismatch, checker, input_checker
from roundtrip.tools.schemas.inlining import inlined
from tests.kit.raised import raised
from tests.kit.tables import check_each
from tests.kit.tiers import examples


class Address(BaseModel):
    """The address of a customer."""

    city: str


class Person(BaseModel):
    name: str
    home: Address
    work: Annotated[Address | None, Field(description="Where they work.")] = None


class Order(BaseModel):
    buyer: Person = Field(description="Who pays.")
    ship_to: Address = Field(default=Address(city="Rome"), title="Ship to")


class Tree(BaseModel):
    at: Address
    children: list["Tree"] = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]
    puppies: list["Dog"] = []


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class CatOwner(BaseModel):
    pet: Annotated[Cat | Address, Field(union_mode="left_to_right")]
    other: Annotated[Union[Cat, "Bird"], Field(discriminator="kind")]


class Bird(BaseModel):
    kind: Literal["bird"]


CatOwner.model_rebuild()


def references(schema: Any) -> list[str]:
    """Every `$ref` in a JSON value."""
    parts: list[Any] = []
    own: list[str] = []
    if isinstance(schema, list):
        parts = cast("list[Any]", schema)
    elif isinstance(schema, dict):
        parts = list(cast("dict[str, Any]", schema).values())
        own = [ref for key, ref in cast("dict[str, Any]", schema).items() if key == "$ref" and isinstance(ref, str)]
    return own + [found for part in parts for found in references(part)]


def allows(schema: dict[str, Any], value: Any) -> bool:
    return Draft202012Validator(schema).is_valid(value)  # pyright: ignore[reportUnknownMemberType] - partly typed


def of(**fields: Any) -> dict[str, Any]:
    return create_model("Arguments", **fields).model_json_schema()


def test_references_are_replaced_by_what_they_refer_to() -> None:
    schema = inlined(Order.model_json_schema())

    assert "$defs" not in schema
    assert references(schema) == []
    city = {"city": {"title": "City", "type": "string"}}
    assert schema["properties"]["buyer"]["properties"]["home"]["properties"] == city
    assert schema["properties"]["buyer"]["properties"]["work"]["anyOf"][0]["properties"] == city
    # Keywords beside a reference win.
    assert schema["properties"]["buyer"]["description"] == "Who pays."
    ship_to = schema["properties"]["ship_to"]
    said = [ship_to[keyword] for keyword in ("title", "default", "description")]
    assert said == ["Ship to", {"city": "Rome"}, "The address of a customer."]


def test_the_schema_it_is_given_stays_as_it_was() -> None:
    for schema in (Order.model_json_schema(), of(tree=(Tree, ...)), {"type": "object"}):
        before = copy.deepcopy(schema)
        found = inlined(schema)
        found.setdefault("properties", {})["added"] = True
        for part in found["properties"].values():
            if isinstance(part, dict):
                part["added"] = True

        assert schema == before


def test_a_recursive_definition_stays_and_all_others_go() -> None:
    schema = inlined(of(tree=(Tree, ...), home=(Address, ...)))

    assert list(schema["$defs"]) == ["Tree"]
    assert set(references(schema)) == {"#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["at"]["properties"]["city"]["type"] == "string"
    check = checker(schema)
    fits: dict[str, Any] = {"tree": {"at": {"city": "x"}, "children": [{"at": {"city": "y"}}]}, "home": {"city": "z"}}
    check(fits)
    with pytest.raises(SchemaMismatch, match=r"tree\.children\[0\]: 'at' is a required property"):
        check({**fits, "tree": {"at": {"city": "x"}, "children": [dict[str, Any]()]}})


def test_a_root_is_an_object_even_when_it_is_recursive() -> None:
    bare: dict[str, Any] = TypeAdapter(Tree).json_schema()
    assert "type" not in bare

    rooted: dict[str, Any] = {**bare["$defs"]["Tree"], "$defs": bare["$defs"]}
    for schema in (inlined(bare), inlined(rooted)):
        assert schema["type"] == "object"
        assert list(schema["$defs"]) == ["Tree"]
        with pytest.raises(SchemaMismatch, match=r"children\[0\]\.at"):
            checker(schema)({"at": {"city": "x"}, "children": [{"at": 3}]})


def test_a_discriminator_maps_only_to_what_stays() -> None:
    schema = of(owner=(CatOwner, ...))
    other = inlined(schema)["properties"]["owner"]["properties"]["other"]

    assert other["discriminator"] == {"propertyName": "kind"}
    assert [arm["properties"]["kind"]["const"] for arm in other["oneOf"]] == ["cat", "bird"]
    # One of these stays, but half a mapping would be a wrong one.
    assert inlined(Owner.model_json_schema())["properties"]["pet"]["discriminator"] == {"propertyName": "kind"}
    dog = {"mapping": {"dog": "#/$defs/Dog"}, "propertyName": "kind"}
    schema = of(dog=(Dog, ...))
    schema["properties"]["dog"] = {"oneOf": [{"$ref": "#/$defs/Dog"}], "discriminator": dog}
    assert inlined(schema)["properties"]["dog"]["discriminator"] == dog


def referring(part: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with this part beside a reference that could be replaced."""
    return {
        "properties": {"a": part, "b": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"properties": {"x": {"type": "integer"}}}},
    }


def test_schema_that_would_explode_or_refers_elsewhere_stays() -> None:
    model = create_model("M0", leaf=(str, ...))
    for level in range(1, 25):
        model = create_model(f"M{level}", left=(model, ...), right=(model, ...))
    chain: dict[str, Any] = {f"D{n}": {"not": {"$ref": f"#/$defs/D{n + 1}"}} for n in range(2000)}
    schemas: dict[str, dict[str, Any]] = {
        "explodes": model.model_json_schema(),
        "too long to follow": {"$ref": "#/$defs/D0", "$defs": {**chain, "D2000": {}}},
        "part of a definition": referring({"$ref": "#/$defs/A/properties/x"}),
        "missing": referring({"$ref": "#/$defs/Missing"}),
        "anchored": referring({"$ref": "#/$defs/A", "$anchor": "here"}),
        "addressed": referring({"$id": "https://example.org/part", "$ref": "#/$defs/A"}),
    }
    assert [name for name, schema in schemas.items() if inlined(schema) != schema] == []
    assert "$defs" not in inlined(create_model("Small", one=(Person, ...), two=(Person, ...)).model_json_schema())


def test_names_of_definitions_may_be_escaped() -> None:
    schema: dict[str, Any] = {
        "properties": {
            "a": {"$ref": "#/$defs/x~1y~0z"},
            "b": {"$ref": "#/$defs/Box%5Bint%5D"},
            "c": {"$ref": "#/$defs/~01"},
        },
        "$defs": {"x/y~z": {"type": "string"}, "Box[int]": {"type": "integer"}, "~1": {"type": "null"}},
    }

    assert inlined(schema) == {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "null"}}}


def test_ref_is_a_reference_only_inside_schemas() -> None:
    word = {"$ref": "#/$defs/A"}
    schema: dict[str, Any] = {
        "properties": {
            "$ref": {"type": "string", "default": word},
            "discriminator": {"const": word},
            "$defs": {"enum": [word], "examples": [word]},
            "items": {"type": "array", "items": word},
        },
        "$defs": {"A": {"type": "integer"}},
    }
    expected = copy.deepcopy(schema)
    del expected["$defs"]
    expected["properties"]["items"]["items"] = {"type": "integer"}

    assert inlined(schema) == expected


def test_a_constraint_beside_a_reference_holds_together_with_it() -> None:
    schema: dict[str, Any] = {
        "properties": {"a": {"$ref": "#/$defs/A", "additionalProperties": False, "required": ["z"]}},
        "$defs": {"A": {"type": "object", "properties": {"x": {}}, "required": ["x"]}},
    }
    values: list[Any] = [{}, {"a": {}}, {"a": {"x": 1}}, {"a": {"z": 1}}, {"a": {"x": 1, "z": 1}}]
    for value in values:
        assert allows(schema, value) == allows(inlined(schema), value)


def test_reference_to_the_root_stays_and_one_at_the_root_goes() -> None:
    schema: dict[str, Any] = {
        "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}, "c": {"$ref": "#/$defs/C"}},
        "$defs": {"C": {"$ref": "#"}},
    }

    assert inlined(schema)["properties"] == {**schema["properties"], "c": {"$ref": "#"}}
    root: dict[str, Any] = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "title": "A"}}, "title": "Root"}
    assert inlined(root) == {"type": "object", "title": "Root"}


def test_missing_description_is_added() -> None:
    schema = of(
        plain=(int, ...), own=(Annotated[int, Field(description="Its own.")], ...), home=(Address, ...), bare=(str, ...)
    )
    before = copy.deepcopy(schema)
    found = with_descriptions(schema, {"plain": "A.", "own": "B.", "home": "C.", "unknown": "D.", "bare": ""})

    assert schema == before
    assert found["properties"]["plain"]["description"] == "A."
    assert found["properties"]["own"]["description"] == "Its own."
    assert found["properties"]["home"] == {"$ref": "#/$defs/Address", "description": "C."}
    assert "description" not in found["properties"]["bare"]
    assert found["properties"].keys() == schema["properties"].keys()
    assert inlined(found)["properties"]["home"]["description"] == "C."
    for nothing in ({"type": "object"}, {"properties": {"a": True}}):
        assert with_descriptions(nothing, {"a": "A."}) == nothing


class Point(BaseModel):
    x: int


ARGUMENTS = of(a=(int, 0), ids=(list[int], []), at=(Point | None, None), n=(int | None, 1))

MISMATCHES: list[tuple[object, str]] = [
    ({"a": "10"}, "a: '10' is not of type 'integer'"),
    ({"ids": ["1", "2"]}, "ids[0]: '1' is not of type 'integer'"),
    ({"at": {"x": "1"}}, "at.x: '1' is not of type 'integer'"),
    ({"at": {}}, "at: 'x' is a required property"),
    ({"n": "10"}, "n: '10' is not of type 'integer', 'null'"),
    ([], "[] is not of type 'object'"),
    ({"a": "x" * 1000}, "a: '" + "x" * 79 + "... is not of type 'integer'"),
]


def test_a_mismatch_says_where_and_what() -> None:
    def check(value: object, message: str) -> None:
        error = raised(checker(ARGUMENTS), value)
        assert isinstance(error, SchemaMismatch)
        assert isinstance(error, ValueError)
        assert str(error) == message
        assert message.startswith(error.place)

    check_each(MISMATCHES, check)


def test_message_is_short_for_any_value() -> None:
    check = checker({"additionalProperties": False, "properties": {"k" * 900: {"type": "integer"}}})
    for value in ({f"extra{n}": n for n in range(500)}, {"k" * 900: "no"}):
        with pytest.raises(SchemaMismatch) as caught:
            check(value)
        assert len(str(caught.value)) < 1000


def test_a_check_does_not_follow_later_changes_of_its_schema() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "integer"}}}
    check = checker(schema)
    schema["properties"]["a"]["type"] = "string"

    check({"a": 1})


def test_invalid_or_referring_schema_is_rejected() -> None:
    def check(schema: dict[str, Any], words: str) -> None:
        error = raised(checker, schema)
        assert isinstance(error, ValueError)
        assert words in str(error)

    schemas: list[tuple[dict[str, Any], str]] = [
        ({"type": "objekt"}, "not a valid JSON schema: type: 'objekt' is not"),
        ({"properties": {"a": {"minLength": "3"}}}, "properties.a.minLength"),
        ({"properties": {"a": {"$ref": "#/$defs/Missing"}}}, "refers to '#/$defs/Missing', which it does not contain"),
        ({"$ref": "https://example.invalid/schema.json"}, "refers to 'https://example.invalid/schema.json'"),
        ({"$ref": "file:///etc/hostname"}, "refers to 'file:///etc/hostname'"),
    ]
    check_each(schemas, check)
    # Inside a part with an address of its own, a reference is not followed.
    addressed = checker({"$id": "https://example.invalid/a", "properties": {"a": {"$id": "b", "$ref": "c"}}})
    with pytest.raises(SchemaMismatch, match="'c', which it does not contain"):
        addressed({"a": 1})


def test_the_dialects_a_schema_may_name_are_known() -> None:
    checker(
        {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/A", "definitions": {"A": {}}}
    )({})
    checker({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"})({})
    checker({"$schema": "https://example.invalid/dialect", "type": "object"})({})
    checker({"$ref": "https://json-schema.org/draft/2020-12/schema"})({"type": "object"})


def test_values_and_schemas_without_a_bottom_are_rejected() -> None:
    deep: Any = []
    for _ in range(50_000):
        deep = [deep]
    for schema in ({"$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}, "$ref": "#/$defs/A"}, {"$ref": "#"}):
        with pytest.raises(SchemaMismatch, match="nested too deeply"):
            checker(schema)(deep)
    while deep:  # one list at a time: freeing them all at once is a recursion too
        deep = deep.pop()


PATTERN = r"^(a+)+$"


def test_patterns_and_uniqueness_are_checked_by_pydantic() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "pattern": PATTERN},
            "set": {"anyOf": [{"type": "array", "uniqueItems": True, "items": {"pattern": PATTERN}}]},
            "names": {"patternProperties": {PATTERN: {"type": "integer"}}, "propertyNames": {"pattern": PATTERN}},
        },
    }
    sent: dict[str, Any] = {"text": "a" * 50 + "!", "set": ["b", "b"], "names": {"a" * 50 + "!": 1}}

    input_checker(schema)(sent)
    for name, wrong in (("text", 5), ("set", "b"), ("names", {"a": "1"})):
        with pytest.raises(SchemaMismatch, match=f"^{name}"):
            input_checker(schema)({**sent, name: wrong})
    with pytest.raises(SchemaMismatch, match="does not match"):
        checker(schema)({"text": "b"})
    assert schema["properties"]["text"] == {"type": "string", "pattern": PATTERN}


class Counting(list[Any]):
    """List that counts the items that were read."""

    read = 0

    def __getitem__(self, place: Any) -> Any:
        self.read += 1
        return super().__getitem__(place)


def test_a_check_stops_at_the_first_few_of_many_mistakes() -> None:
    kinds: list[Any] = [list[int], list[int] | None, dict[str, int] | list[int]]
    for items in kinds:
        value = Counting(["a"] * 1000)
        with pytest.raises(SchemaMismatch, match="'a' is not of type 'integer'"):
            input_checker(TypeAdapter[Any](items).json_schema())(value)
        assert 0 < value.read < 100


FORMATS: list[tuple[str, list[str], list[str]]] = [
    ("date", ["2026-07-28"], ["1700000000", "2026-07-28T00:00:00"]),
    ("date-time", ["2026-07-28T01:02:03Z", "2026-07-28T01:02:03.5+02:00", "2026-07-28T01:02"], ["1700000000", ""]),
    ("time", ["01:02:03", "01:02Z"], ["3600", "01h02"]),
    ("duration", ["P3D", "-PT1.5S"], ["5", "3 days", "P"]),
    ("uuid", ["00000000-0000-0000-0000-000000000001"], ["0" * 32, "urn:uuid:x"]),
    ("regex", ["("], []),
]


def test_client_values_must_match_their_format() -> None:
    def check(format: str, allowed: list[str], refused: list[str]) -> None:
        kinds = [{"type": "string", "format": format}, {"type": "null"}]
        fits = input_checker({"properties": {"at": {"anyOf": kinds}}})
        errors = {text: raised(fits, {"at": text}) for text in (*allowed, None, *refused)}
        assert [text for text, error in errors.items() if error is not None] == refused
        assert [text for text in refused if f"is not a '{format}'" not in str(errors[text])] == []

    check_each(FORMATS, check)


SCALARS: list[Any] = [int, str, bool, None, Literal["a", "b"], Annotated[int, Field(ge=0)]]
NAMES = ["M0", "M1", "M2", "M3"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["a", "c"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["f0", "f1", "f2"]), inner, max_size=3),
    max_leaves=12,
)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Return the schema of a model that refers to others, to some of them twice, and maybe to itself."""
    wrapped: list[Callable[[Any], Any]] = [
        lambda inner: inner,
        lambda inner: list[inner],
        lambda inner: dict[str, inner],
        lambda inner: Union[inner, None],  # noqa: UP007 - of a name that is not there yet
        lambda inner: Annotated[inner, Field(description="Said here.")],
    ]
    namespace: dict[str, Any] = {}
    for name in NAMES:
        fields: dict[str, Any] = {}
        for field in draw(st.lists(st.sampled_from(["f0", "f1", "f2"]), unique=True, min_size=1)):
            inner = draw(st.sampled_from([*SCALARS, *map(ForwardRef, NAMES)]))
            annotation = draw(st.sampled_from(wrapped))(inner)
            fields[field] = (annotation, ...) if draw(st.booleans()) else (annotation, None)
        namespace[name] = create_model(name, **fields)
    for model in namespace.values():
        model.model_rebuild(_types_namespace=namespace)
    return namespace[draw(st.sampled_from(NAMES))].model_json_schema()


@settings(max_examples=examples(60), deadline=None)
@given(schemas(), st.lists(VALUES, min_size=1, max_size=12))
def test_an_inlined_schema_allows_what_the_other_allows(schema: dict[str, Any], values: list[Any]) -> None:
    found = inlined(schema)
    assert set(references(found)) <= {f"#/$defs/{name}" for name in found.get("$defs", {})}
    for value in values:
        assert allows(schema, value) == allows(found, value)
