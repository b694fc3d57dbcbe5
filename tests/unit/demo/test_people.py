"""Who answers the demo: what is typed is sent as it was meant, and nothing typed is lost on the way."""

from typing import Any, Literal

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult
from pydantic import BaseModel, Field

from roundtrip.demo.people import DemoPerson, ScriptedPerson
from roundtrip.questions.forms import form_of


class Order(BaseModel):
    size: Literal["small", "large"] = Field(description="Size")
    agreed: bool
    copies: int
    weight: float
    note: str = ""


def form() -> ElicitRequestFormParams:
    schema: Any = form_of(Order).schema
    return ElicitRequestFormParams(message="?", requested_schema=schema)


class Keyboard:
    """Types some lines, then ends the input."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt.strip())
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)


def typed(*lines: str) -> ElicitResult:
    return DemoPerson(Keyboard(*lines)).answer("order", form())


def test_a_form_is_put_field_by_field_with_its_choices() -> None:
    keyboard = Keyboard("small", "yes", "2", "0.5", "")
    DemoPerson(keyboard).answer("order", form())
    assert keyboard.prompts == [
        "Size (small, large):",
        "Agreed (yes, no):",
        "Copies:",
        "Weight:",
        "Note [may be left empty]:",
    ]


def test_answers_are_sent_in_the_types_of_the_form() -> None:
    assert typed(" small ", "Y", "2", "0.5", "soon") == ElicitResult(
        action="accept", content={"size": "small", "agreed": True, "copies": 2, "weight": 0.5, "note": "soon"}
    )
    assert typed("large", "no", "2", "1", "") == ElicitResult(
        action="accept", content={"size": "large", "agreed": False, "copies": 2, "weight": 1.0}
    )


def test_unfit_input_is_sent_unchanged_to_the_server() -> None:
    assert typed("huge", "perhaps", "two", "", "") == ElicitResult(
        action="accept", content={"size": "huge", "agreed": "perhaps", "copies": "two", "weight": ""}
    )


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_form_is_declined_or_cancelled_at_any_field(action: Literal["decline", "cancel"]) -> None:
    assert typed(action) == typed("small", action) == ElicitResult(action=action)


def test_the_end_of_the_input_cancels() -> None:
    assert typed("small") == ElicitResult(action="cancel")


def test_a_script_declines_what_it_was_not_written_for() -> None:
    person = ScriptedPerson({"order": {"size": "small"}})
    assert person.answer("order", form()) == ElicitResult(action="accept", content={"size": "small"})
    assert person.answer("other", form()) == ElicitResult(action="decline")
