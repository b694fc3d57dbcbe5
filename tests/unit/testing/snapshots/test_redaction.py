"""Values that redaction omits, and values that stay."""

import json
from typing import Any

from roundtrip.testing.snapshots.redaction import REDACTED, SnapshotRedaction


def redacted(value: Any, *fields: str) -> Any:
    redaction = SnapshotRedaction(fields)
    return redaction.texts(redaction.data(value))


def test_a_field_is_redacted_at_any_depth() -> None:
    value = {"card": "4111", "people": [{"card": {"number": 7}, "name": "Ada"}]}
    assert redacted(value, "card") == {"card": REDACTED, "people": [{"card": REDACTED, "name": "Ada"}]}


def test_repeated_secret_texts_are_redacted_and_short_values_stay() -> None:
    value = {"card": ["4111-2222", 55667788, "12", True], "said": "4111-2222 of 12 for 55667788", "n": 55667788}
    assert redacted(value, "card")["said"] == f"{REDACTED} of 12 for {REDACTED}"
    assert redacted(value, "card")["n"] == REDACTED
    assert redacted({"card": True, "said": "True"}, "card")["said"] == "True"


def test_json_in_a_text_is_redacted_by_name() -> None:
    text = redacted(json.dumps({"pin": "12", "name": "Ada"}), "pin")
    assert json.loads(text) == {"pin": REDACTED, "name": "Ada"}


def test_text_that_only_looks_like_json_stays() -> None:
    for text in ("[not json", '{"name": "Ada"}', "{", "[" * 100_000):
        assert redacted(text, "pin") == text


def test_redacted_form_keeps_its_shape_and_loses_values() -> None:
    shape = {"type": "string", "title": "Card", "default": "4111", "enum": ["4111", "5500"], "maxLength": 9}
    other = {"type": "string", "default": "Ada"}
    assert SnapshotRedaction(["card"]).form({"card": shape, "name": other}) == {
        "card": {"type": "string", "title": "Card", "default": REDACTED, "enum": REDACTED, "maxLength": 9},
        "name": other,
    }


def test_nothing_is_touched_without_fields() -> None:
    value = {"card": '{"pin": 1}'}
    assert SnapshotRedaction().texts(SnapshotRedaction().data(value)) is value
