"""Answers over the legs of one call: those that count, those asked for again, and the limits."""

from typing import Any

import pytest
from mcp_types import CreateMessageResult, ElicitResult, TextContent
from pydantic import BaseModel

from roundtrip import Elicit, Sample
from roundtrip.errors import AnswerRejected, QuestionVolatile, SchemaNotRenderable
from roundtrip.machine.journal import Action
from roundtrip.questions.outcomes import Outcome
from tests.kit.shops import Choice
from tests.unit.engine.rounds import DECLINE, Rounds, alone, plan_of, yes


class Size(BaseModel):
    size: int


def confirm() -> Elicit[Choice]:
    return Elicit("Sure?", Choice)


def measure() -> Elicit[Size]:
    return Elicit("How big?", Size)


SURE = Elicit("Sure?", Choice)
BIG = Elicit("How big?", Size)
YES = Outcome(Choice(ok=True))


def pair() -> Rounds:
    return Rounds(plan_of(a=confirm, b=measure))


def test_question_is_new_then_answered_then_known() -> None:
    rounds = Rounds(alone(confirm))
    assert rounds.round({"confirm": SURE}) == {"confirm": None}
    assert rounds.reason("confirm") == "new"
    for responses in ({"confirm": yes(ok=True)}, {}, {"confirm": yes(ok=False)}, {"confirm": DECLINE}):
        assert rounds.round({"confirm": SURE}, responses) == {"confirm": YES}
        assert rounds.asked == {}


@pytest.mark.parametrize(
    ("response", "action"),
    [(DECLINE, Action.DECLINE), (ElicitResult(action="cancel"), Action.CANCEL)],
    ids=["decline", "cancel"],
)
def test_decline_is_remembered_like_an_answer(response: ElicitResult, action: Action) -> None:
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": SURE})
    assert rounds.round({"confirm": SURE}, {"confirm": response}) == {"confirm": Outcome(action=action)}
    assert rounds.round({"confirm": SURE}) == {"confirm": Outcome(action=action)}


def test_missing_answer_is_asked_again_alone() -> None:
    """Shows S7."""
    rounds = pair()
    rounds.round({"confirm": SURE, "measure": BIG})
    assert rounds.round({"confirm": SURE, "measure": BIG}, {"confirm": yes(ok=True)}) == {
        "confirm": YES,
        "measure": None,
    }
    assert rounds.reason("measure") == "missing"
    assert list(rounds.asked) == ["measure"]
    outcomes = rounds.round({"confirm": SURE, "measure": BIG}, {"measure": yes(size=3)})
    assert outcomes == {"confirm": YES, "measure": Outcome(Size(size=3))}


def test_unasked_answers_are_ignored() -> None:
    """Shows S8."""
    rounds = pair()
    rounds.round({"confirm": SURE})
    unasked = {"measure": yes(size=3), "else": yes(ok=True), "": DECLINE}
    assert rounds.round({"confirm": SURE}, unasked) == {"confirm": None}
    assert rounds.entries == {}
    assert rounds.round({"confirm": SURE, "measure": BIG}, {"measure": yes(size=4)})["measure"] is None


def test_an_invalid_answer_is_asked_again_alone_with_its_reason() -> None:
    rounds = pair()
    rounds.round({"confirm": SURE, "measure": BIG})
    outcomes = rounds.round({"confirm": SURE, "measure": BIG}, {"confirm": yes(ok=True), "measure": yes(size="huge")})
    assert outcomes == {"confirm": YES, "measure": None}
    assert rounds.reason("measure") == "invalid"
    request = rounds.answers.open["measure"].request()
    assert request.params is not None
    message = request.params.model_dump()["message"]
    assert message.startswith("How big?")
    assert "size: Input should be a valid integer" in message
    assert rounds.round({"measure": BIG}, {"measure": yes(size=3)}) == {"measure": Outcome(Size(size=3))}


@pytest.mark.parametrize("response", [None, yes(size="huge"), ElicitResult(action="accept")], ids=repr)
def test_third_invalid_answer_ends_the_call_naming_the_question(response: ElicitResult | None) -> None:
    """Shows S9."""
    rounds = Rounds(alone(measure))
    rounds.round({"measure": BIG})
    for attempts in (1, 2):
        assert rounds.round({"measure": BIG}, {"measure": response}) == {"measure": None}
        assert rounds.asked["measure"].attempts == attempts
    with pytest.raises(AnswerRejected, match="'measure'") as caught:
        rounds.round({"measure": BIG}, {"measure": response})
    assert (caught.value.key, caught.value.attempts) == ("measure", 3)


@pytest.mark.parametrize("attempts", [1, 5])
def test_a_question_may_say_how_often_it_is_asked(attempts: int) -> None:
    question = Elicit("How big?", Size, attempts=attempts)
    rounds = Rounds(alone(measure))
    rounds.round({"measure": question})
    for _ in range(attempts - 1):
        rounds.round({"measure": question}, {"measure": None})
    with pytest.raises(AnswerRejected) as caught:
        rounds.round({"measure": question}, {"measure": None})
    assert caught.value.attempts == attempts


def test_leg_without_an_answer_keeps_the_invalid_count() -> None:
    rounds = Rounds(alone(measure))
    rounds.round({"measure": BIG})
    rounds.round({"measure": BIG}, {"measure": None})
    rounds.round({"measure": BIG})
    rounds.round({"measure": BIG}, {"measure": None})
    with pytest.raises(AnswerRejected):
        rounds.round({"measure": BIG}, {"measure": None})


def test_an_answer_to_another_kind_of_question_is_invalid() -> None:
    said = CreateMessageResult(role="assistant", content=TextContent(type="text", text="yes"), model="m")
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": SURE})
    assert rounds.round({"confirm": SURE}, {"confirm": said}) == {"confirm": None}
    assert rounds.reason("confirm") == "invalid"

    def ask() -> Sample:
        return Sample("hi", max_tokens=5)

    rounds = Rounds(alone(ask))
    rounds.round({"ask": ask()})
    assert rounds.round({"ask": ask()}, {"ask": DECLINE}) == {"ask": None}
    assert rounds.round({"ask": ask()}, {"ask": said}) == {"ask": Outcome(said)}
    assert rounds.round({"ask": ask()}) == {"ask": Outcome(said)}


# Changed questions.


def test_recorded_answer_waits_for_its_own_wording() -> None:
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": SURE})
    rounds.round({"confirm": SURE}, {"confirm": yes(ok=True)})
    assert rounds.round({"confirm": Elicit("Really?", Choice)}) == {"confirm": None}
    assert rounds.round({"confirm": SURE}) == {"confirm": YES}


def test_changed_wording_resets_the_invalid_count() -> None:
    rounds = Rounds(alone(measure))
    rounds.round({"measure": BIG})
    rounds.round({"measure": BIG}, {"measure": None})
    rounds.round({"measure": BIG}, {"measure": None})
    reworded = Elicit("How big exactly?", Size)
    assert rounds.round({"measure": reworded}, {"measure": None}) == {"measure": None}
    assert rounds.asked["measure"].attempts == 0


def test_the_complaint_does_not_count_as_a_changed_wording() -> None:
    rounds = Rounds(alone(measure))
    rounds.round({"measure": BIG})
    before = rounds.asked["measure"].pin
    rounds.round({"measure": BIG}, {"measure": None})
    assert rounds.asked["measure"].pin == before


def question(number: int, **options: Any) -> Elicit[Choice]:
    return Elicit(f"It is {number} o'clock. Sure?", Choice, **options)


def test_question_losing_two_answers_in_a_row_is_volatile() -> None:
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": question(1)})
    rounds.round({"confirm": question(2)}, {"confirm": yes(ok=True)})
    with pytest.raises(QuestionVolatile, match="once=True") as caught:
        rounds.round({"confirm": question(3)}, {"confirm": yes(ok=True)})
    assert (caught.value.key, caught.value.changed) == ("confirm", ("message",))


def test_a_question_may_be_volatile_if_it_says_so() -> None:
    rounds = Rounds(alone(confirm))
    for number in range(10):
        assert rounds.round({"confirm": question(number, volatile_ok=True)}, {"confirm": yes(ok=True)}) == {
            "confirm": None
        }


def test_question_changed_by_another_answer_is_not_volatile() -> None:
    rounds = Rounds(plan_of(a=measure, b=confirm))
    rounds.round({"measure": BIG, "confirm": question(1)})
    rounds.round({"measure": BIG, "confirm": question(2)}, {"confirm": yes(ok=True)})
    rounds.round({"measure": BIG, "confirm": question(3)}, {"confirm": yes(ok=True), "measure": yes(size=1)})
    assert rounds.asked["confirm"].discards == 0
    rounds.round({"measure": BIG, "confirm": question(4)}, {"confirm": yes(ok=True)})
    with pytest.raises(QuestionVolatile):
        rounds.round({"measure": BIG, "confirm": question(5)}, {"confirm": yes(ok=True)})


@pytest.mark.parametrize("unanswered", [2, 3], ids=["unchanged", "changed"])
def test_unanswered_leg_resets_the_volatile_count(unanswered: int) -> None:
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": question(1)})
    rounds.round({"confirm": question(2)}, {"confirm": yes(ok=True)})
    rounds.round({"confirm": question(unanswered)})
    assert rounds.round({"confirm": question(unanswered + 1)}, {"confirm": yes(ok=True)}) == {"confirm": None}
    assert rounds.asked["confirm"].discards == 1


def test_a_wording_that_another_build_changed_is_not_volatile() -> None:
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": question(1)})
    for number in range(2, 10):
        rounds.redeploy(alone(confirm), build=f"b{number}")
        assert rounds.round({"confirm": question(number)}, {"confirm": yes(ok=True)}) == {"confirm": None}
        assert rounds.asked["confirm"].discards == 0


def test_unrenderable_question_names_itself_and_its_field() -> None:
    class Nested(BaseModel):
        inner: Choice

    rounds = Rounds(alone(confirm))
    with pytest.raises(SchemaNotRenderable, match=r"question 'confirm'.*'inner'") as caught:
        rounds.round({"confirm": Elicit("Sure?", Nested)})
    assert caught.value.field == "inner"


def test_answer_to_an_unasked_question_waits_for_it() -> None:
    rounds = pair()
    rounds.round({"confirm": SURE, "measure": BIG})
    rounds.round({"measure": BIG}, {"confirm": yes(ok=True)})
    assert rounds.round({"confirm": SURE, "measure": BIG}) == {"confirm": YES, "measure": None}


def test_waiting_answer_is_still_validated_when_read() -> None:
    """Shows S4."""
    rounds = pair()
    rounds.round({"confirm": SURE, "measure": BIG})
    rounds.round({"measure": BIG}, {"confirm": yes(ok="perhaps")})
    assert rounds.round({"confirm": SURE}) == {"confirm": None}
