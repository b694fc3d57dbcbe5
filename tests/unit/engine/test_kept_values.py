"""The first value of a remembered node is final for the call, and belongs to the wording of its question."""

import datetime
from typing import Annotated, Any

import pytest
from mcp_types import CreateMessageResult, ListRootsResult, Root, TextContent
from pydantic import BaseModel, Field, FileUrl

from roundtrip import Elicit, ListRoots, Resolve, Sample
from roundtrip.errors import ValueNotStorable
from roundtrip.questions.markers import Marker
from roundtrip.questions.outcomes import Outcome
from tests.kit.shops import Choice
from tests.unit.engine.rounds import Rounds, alone, answers_of, plan_of, yes


class Quote(BaseModel):
    price: float
    until: datetime.date = Field(alias="validUntil")


SAID = CreateMessageResult(role="assistant", content=TextContent(type="text", text="yes"), model="m")


def confirm() -> Elicit[Choice]:
    return Elicit("Sure?", Choice)


def transfer(amount: int) -> Elicit[Choice]:
    return Elicit(f"Transfer {amount}?", Choice)


def kept(value: Any, annotation: Any) -> Any:
    """Return a value as the next leg restores it."""

    def quote() -> Any: ...

    quote.__annotations__["return"] = annotation
    rounds = Rounds(alone(quote, remember=True))
    node = rounds.node("quote")
    rounds.answers.remember(node, value)
    back = answers_of(rounds.plan)
    back.computed = rounds.answers.computed
    outcome = back.recall(node)
    assert outcome is not None
    return outcome.value


def test_computed_value_keeps_its_annotated_type() -> None:
    values: list[tuple[Any, Any]] = [
        (1, int),
        (None, int | None),
        (Quote(price=9.5, validUntil=datetime.date(2026, 7, 28)), Quote),
        ([datetime.date(2026, 7, 28)], list[datetime.date]),
        ({"a": (1, "b")}, dict[str, tuple[int, str]]),
        (Choice(ok=True), Choice | Elicit[Choice]),
        ({"free": ["form", 1, None]}, Any),
    ]
    assert [kept(value, annotation) for value, annotation in values] == [value for value, _ in values]


def test_value_beyond_its_annotation_is_rejected_by_key() -> None:
    beyond: list[tuple[Any, Any]] = [(object(), Any), ({"a": {1, object()}}, Any), ("text for a number", int)]
    for value, annotation in beyond:
        with pytest.raises(ValueNotStorable, match="'quote'") as caught:
            kept(value, annotation)
        assert caught.value.name == "quote"


def test_outdated_fixed_value_is_computed_again() -> None:
    def quote() -> int:
        return 1

    def quote_in_words() -> str:
        return "one"

    rounds = Rounds(alone(quote_in_words, name="quote", remember=True))
    rounds.answers.remember(rounds.node("quote"), "one")
    newer = Rounds(alone(quote, remember=True))
    newer.answers.computed = rounds.answers.computed
    assert newer.answers.recall(newer.node("quote")) is None


def test_discarded_answer_never_becomes_the_once_answer() -> None:
    """Shows S4."""
    rounds = Rounds(alone(confirm, remember=True))
    rounds.round({"confirm": transfer(10)})
    assert rounds.round({"confirm": transfer(1000)}, {"confirm": yes(ok=True)}) == {"confirm": None}
    refused = Outcome(Choice(ok=False))
    assert rounds.round({"confirm": transfer(1000)}, {"confirm": yes(ok=False)}) == {"confirm": refused}
    assert rounds.round({"confirm": transfer(1000)}) == {"confirm": refused}


def other() -> Elicit[Choice]:
    return Elicit("Other?", Choice)


def test_answer_carried_by_another_build_counts_for_its_wording_only() -> None:
    def carried(amount: int) -> Outcome | None:
        once = plan_of(a=Resolve(confirm, remember=True))
        rounds = Rounds(once)
        rounds.round({"confirm": transfer(10)})
        rounds.redeploy(plan_of(b=other))
        for replies in ({"confirm": yes(ok=True)}, {}, {}):
            rounds.round({"other": other()}, replies)
        rounds.redeploy(once, build="b1")
        return rounds.round({"confirm": transfer(amount)})["confirm"]

    assert {amount: carried(amount) for amount in (10, 1000)} == {10: Outcome(Choice(ok=True)), 1000: None}


@pytest.mark.parametrize(
    ("marker", "returns", "answer"),
    [
        (Elicit("Sure?", Choice), Elicit[Choice], yes(ok=True)),
        (Sample("hi", max_tokens=5), Sample, SAID),
        (ListRoots(), ListRoots, ListRootsResult(roots=[Root(uri=FileUrl("file:///books"))])),
    ],
    ids=["form", "sample", "roots"],
)
def test_each_kind_of_answer_keeps_its_type(marker: Marker, returns: Any, answer: Any) -> None:
    def ask() -> Any: ...

    ask.__annotations__["return"] = returns
    rounds = Rounds(alone(ask, remember=True))
    rounds.round({"ask": marker})
    first = rounds.round({"ask": marker}, {"ask": answer})["ask"]
    assert first is not None
    assert first.value == (answer if isinstance(marker, Sample | ListRoots) else Choice(ok=True))
    assert rounds.round({"ask": marker}) == {"ask": first}


def test_once_question_with_an_unclear_annotation_is_rejected() -> None:
    def ask() -> Any: ...

    rounds = Rounds(alone(ask, remember=True))
    with pytest.raises(ValueNotStorable, match=r"Elicit\[Choice\]"):
        rounds.round({"ask": Elicit("Sure?", Choice)})


def test_fixed_value_follows_a_rename() -> None:
    def quote() -> Annotated[int, "said"]:
        return 1

    older = Rounds(alone(quote, remember=True))
    older.answers.remember(older.node("quote"), 7)
    newer = Rounds(alone(quote, name="price", former_names=("quote",), remember=True))
    newer.answers.computed = older.answers.computed
    assert newer.answers.recall(newer.node("price")) == Outcome(7)
    assert list(newer.answers.computed.values) == ["price"]
