"""Answers over the legs of one call: those that count, those asked for again, and the limits."""

from typing import Any

import pytest
from mcp_types import ElicitResult
from pydantic import BaseModel

from roundtrip import Elicit
from roundtrip.errors import AnswerRejected, QuestionVolatile
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


@pytest.mark.parametrize(("options", "attempts"), [({}, 3), ({"attempts": 1}, 1), ({"attempts": 5}, 5)])
def test_last_invalid_answer_ends_the_call_naming_the_question(options: dict[str, int], attempts: int) -> None:
    """Shows S9."""
    question = Elicit("How big?", Size, **options)
    responses = [None, yes(size="huge"), ElicitResult(action="accept"), None, None]
    rounds = Rounds(alone(measure))
    rounds.round({"measure": question})
    for number, response in enumerate(responses[: attempts - 1], start=1):
        assert rounds.round({"measure": question}, {"measure": response}) == {"measure": None}
        assert (rounds.reason("measure"), rounds.asked["measure"].attempts) == ("invalid", number)
    with pytest.raises(AnswerRejected, match="'measure'") as caught:
        rounds.round({"measure": question}, {"measure": responses[attempts - 1]})
    assert (caught.value.key, caught.value.attempts) == ("measure", attempts)


def test_leg_without_an_answer_keeps_the_invalid_count() -> None:
    rounds = Rounds(alone(measure))
    rounds.round({"measure": BIG})
    rounds.round({"measure": BIG}, {"measure": None})
    rounds.round({"measure": BIG})
    rounds.round({"measure": BIG}, {"measure": None})
    with pytest.raises(AnswerRejected):
        rounds.round({"measure": BIG}, {"measure": None})


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


def test_waiting_answer_is_still_validated_when_read() -> None:
    """Shows S4."""
    rounds = pair()
    rounds.round({"confirm": SURE, "measure": BIG})
    rounds.round({"measure": BIG}, {"confirm": yes(ok="perhaps")})
    assert rounds.round({"confirm": SURE}) == {"confirm": None}
