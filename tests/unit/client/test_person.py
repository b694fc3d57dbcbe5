"""The person at the terminal answers field by field, in the types of the form."""

from typing import Any, Literal

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult
from pydantic import BaseModel, Field

from roundtrip.client.person import PersonAtTerminal
from roundtrip.client.terminal import Terminal
from roundtrip.questions.forms import form_of

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    size: Literal["small", "large"] = Field(description="Size")
    agreed: bool
    copies: int
    weight: float
    note: str = ""


def form() -> ElicitRequestFormParams:
    schema: Any = form_of(Order).schema
    return ElicitRequestFormParams(message="?", requested_schema=schema)


class Keyboard(Terminal):
    """Types some lines, then ends the input."""

    def __init__(self, *lines: str) -> None:
        super().__init__()
        self._lines = list(lines)
        self.prompts: list[str] = []

    async def ask(self, prompt: str) -> str | None:
        self.prompts.append(prompt.strip())
        return self._lines.pop(0) if self._lines else None


async def typed(*lines: str, checks: bool = False) -> ElicitResult:
    return await PersonAtTerminal(Keyboard(*lines), checks=checks).fill_in(form())


async def test_each_field_is_prompted_with_its_hint(capsys: pytest.CaptureFixture[str]) -> None:
    keyboard = Keyboard("small", "yes", "2", "0.5", "")
    await PersonAtTerminal(keyboard).fill_in(form())
    assert keyboard.prompts == ["type its number:", "y or n:", "a whole number:", "a number:", "Enter for '':"]
    shown = capsys.readouterr().err
    assert "Size (required)\n  1) small\n  2) large\n" in shown
    assert "Agreed (required)\n" in shown


@pytest.mark.parametrize("checks", [True, False])
async def test_answers_are_sent_in_the_types_of_the_form(checks: bool) -> None:
    assert await typed(" small ", "Y", "2", "0.5", "soon", checks=checks) == ElicitResult(
        action="accept", content={"size": "small", "agreed": True, "copies": 2, "weight": 0.5, "note": "soon"}
    )
    assert await typed("large", "no", "2", "1", "", checks=checks) == ElicitResult(
        action="accept", content={"size": "large", "agreed": False, "copies": 2, "weight": 1.0, "note": ""}
    )


async def test_unchecked_values_are_sent_as_typed() -> None:
    assert await typed("huge", "perhaps", "two", "", "") == ElicitResult(
        action="accept", content={"size": "huge", "agreed": "perhaps", "copies": "two", "weight": "", "note": ""}
    )


async def test_checked_values_are_asked_again() -> None:
    assert await typed("huge", "1", "y", "two", "2", "", "3", "", checks=True) == ElicitResult(
        action="accept", content={"size": "small", "agreed": True, "copies": 2, "weight": 3, "note": ""}
    )


async def test_a_form_is_declined_or_canceled_at_any_field() -> None:
    for action in ("decline", "cancel"):
        assert await typed(f":{action}") == await typed("small", f":{action}") == ElicitResult(action=action)
    # The end of the input cancels.
    assert await typed("small") == ElicitResult(action="cancel")
