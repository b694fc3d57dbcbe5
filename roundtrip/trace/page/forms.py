"""Forms as the user saw them: a schema, and what was answered, as fields that a page can draw."""

import json
from collections.abc import Mapping
from typing import Any, TypedDict, cast

__all__ = ["Option", "PageField", "fields_of", "json_text", "value_text"]


class Option(TypedDict):
    """One of the choices of a field."""

    label: str
    chosen: bool


class PageField(TypedDict):
    """One field of a form."""

    name: str
    label: str
    about: str
    required: bool
    options: list[Option]
    """Empty for a field that takes text."""
    many: bool
    """Whether several options may be chosen."""
    value: str
    given: bool
    """Whether the value was answered; else it is what the field was filled in with."""


def fields_of(schema: object, answer: object) -> list[PageField]:
    """The fields of a form, in order, filled in with an answer or with their defaults.

    Anything may stand in a transcript, so what does not look like a field is shown as one that takes text.
    """
    shapes = _mapping(_mapping(schema).get("properties"))
    required = _mapping(schema).get("required")
    needed = cast("list[object]", required) if isinstance(required, list) else []
    given = _mapping(answer)
    fields = [_field(name, _mapping(shape), given, name in needed) for name, shape in shapes.items()]
    return fields + [_field(name, {}, given, False) for name in given if name not in shapes]


def value_text(value: object, *, indent: int | None = None) -> str:
    """A value in words: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else json_text(value, indent=indent)


def json_text(value: object, *, indent: int | None = None) -> str:
    """A value as JSON, for people to read."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except RecursionError:
        return "(nested too deeply to be shown)"


def _field(name: str, shape: Mapping[str, Any], answer: Mapping[str, Any], required: bool) -> PageField:
    is_given = name in answer
    value = answer[name] if is_given else shape.get("default")
    return PageField(
        name=name,
        label=value_text(shape.get("title", name)),
        about=value_text(shape.get("description", "")),
        required=required,
        options=[Option(label=label, chosen=_is_chosen(choice, value)) for choice, label in _choices(shape)],
        many=shape.get("type") == "array",
        value="" if value is None else value_text(value),
        given=is_given,
    )


def _is_chosen(choice: object, value: object) -> bool:
    if isinstance(value, list):
        return choice in cast("list[object]", value)
    return type(choice) is type(value) and choice == value


def _choices(shape: Mapping[str, Any]) -> list[tuple[object, str]]:
    """The choices of a field, each with its label."""
    if shape.get("type") == "boolean":
        return [(True, "yes"), (False, "no")]
    if shape.get("type") == "array":
        return _choices({**_mapping(shape.get("items")), "type": "items"})
    listed = shape.get("enum")
    if isinstance(listed, list):
        values = cast("list[object]", listed)
        named = shape.get("enumNames")
        names = cast("list[object]", named) if isinstance(named, list) else []
        labels = names if len(names) == len(values) else values
        return [(value, value_text(label)) for value, label in zip(values, labels, strict=True)]
    for word in ("oneOf", "anyOf"):
        titled = shape.get(word)
        if isinstance(titled, list):
            options = [_mapping(option) for option in cast("list[object]", titled)]
            return [
                (option["const"], value_text(option.get("title", option["const"])))
                for option in options
                if "const" in option
            ]
    return []


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
