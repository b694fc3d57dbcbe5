"""Forms on a call page: a schema's fields, filled in with an answer."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from roundtrip.questions.fields import FieldKind, FormField, fields_of
from roundtrip.untrusted import mapping_of


def page_fields_of(schema: object, answer: object) -> list[dict[str, Any]]:
    """Return a form's fields, in order. Each field has the answer's value, or else the field's default.

    A transcript may contain anything, so the page shows a field with an unknown shape as a text field.
    """
    given = mapping_of(answer)
    fields = fields_of(mapping_of(schema))
    known = {field.name for field in fields}
    unknown = [FormField(name, FieldKind.JSON) for name in given if name not in known]
    return [_page_field(field, given) for field in (*fields, *unknown)]


def value_text(value: object, *, indent: int | None = None) -> str:
    """Return a string unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json_text(value, indent=indent)


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return a value as readable JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except RecursionError:
        return "(too deeply nested to show)"


def _page_field(field: FormField, answer: Mapping[str, Any]) -> dict[str, Any]:
    is_given = field.name in answer
    value = answer[field.name] if is_given else field.default
    return {
        "name": field.name,
        "label": field.title or field.name,
        "about": field.description or "",
        "required": field.required,
        # A text field has no options.
        "options": [{"label": label, "chosen": _is_chosen(choice, value)} for choice, label in _choices(field)],
        "many": field.kind is FieldKind.SEVERAL,
        "value": "" if value is None else value_text(value),
        # False if this value is the field's default and not an answer.
        "given": is_given,
    }


def _is_chosen(choice: object, value: object) -> bool:
    if isinstance(value, list):
        return choice in cast("list[object]", value)
    return type(choice) is type(value) and choice == value


def _choices(field: FormField) -> Sequence[tuple[object, str]]:
    if field.kind is FieldKind.YES_NO:
        return [(True, "yes"), (False, "no")]
    return [(choice.value, choice.title) for choice in field.choices]
