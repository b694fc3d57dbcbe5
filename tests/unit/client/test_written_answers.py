"""Answers of a file to forms."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from roundtrip.client.answers import answer_from, read_answers
from roundtrip.client.failures import CallFailed


def answered(tmp_path: Path, answer: Any, **properties: Any) -> Any:
    """Return the answer to a form with these fields."""
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"q": answer}))
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    form = ElicitRequestFormParams(message="?", requested_schema=schema)
    return answer_from(read_answers(str(file)), ElicitRequest(params=form), "q")


def test_only_value_of_a_form_may_be_written_alone(tmp_path: Path) -> None:
    several = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (True, {"type": "boolean"}),
        (3, {"type": "integer"}),
        ("window", {"type": "string"}),
        (["a", "b"], several),
        (0, {"type": "integer"}),
    ]
    for value, kind in kinds:
        sent = [answered(tmp_path, one, value=kind) for one in (value, {"value": value})]
        assert sent == [ElicitResult(action="accept", content={"value": value})] * 2


def test_word_for_an_action_is_the_action(tmp_path: Path) -> None:
    assert answered(tmp_path, "decline", value={"type": "string"}) == ElicitResult(action="decline")
    sent = answered(tmp_path, {"value": "decline"}, value={"type": "string"})
    assert sent == ElicitResult(action="accept", content={"value": "decline"})


def test_value_alone_must_fit_and_is_none_of_several_fields(tmp_path: Path) -> None:
    with pytest.raises(CallFailed, match="the answer to the question 'q' does not fit"):
        answered(tmp_path, "many", value={"type": "integer"})
    with pytest.raises(CallFailed, match="must be an object with the form's fields"):
        answered(tmp_path, 3, seats={"type": "integer"})
