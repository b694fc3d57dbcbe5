"""Answers over the legs of one call, also across builds: those that count, and those that are asked for again."""

from collections.abc import Callable
from typing import Any

import pytest
from mcp_types import ElicitResult
from pydantic import BaseModel

from roundtrip import Elicit, ElicitUrl
from roundtrip.errors import AnswerRejected, QuestionVolatile
from roundtrip.machine.journal import Action
from roundtrip.questions.outcomes import Outcome
from tests.kit.shops import Choice
from tests.unit.engine.rounds import DECLINE, Rounds, alone, answers_of, plan_of, yes


class Size(BaseModel):
    size: int


def confirm() -> Elicit[Choice]:
    return Elicit("Sure?", Choice)


def measure() -> Elicit[Size]:
    return Elicit("How big?", Size)


SURE = Elicit("Sure?", Choice)
BIG = Elicit("How big?", Size)
YES, NO = Outcome(Choice(ok=True)), Outcome(Choice(ok=False))


ACCEPT = ElicitResult(action="accept")


def pair() -> Rounds:
    return Rounds(plan_of(a=confirm, b=measure))


def test_question_is_new_then_answered_then_known() -> None:
    rounds = Rounds(alone(confirm))
    assert rounds.round({"confirm": SURE}) == {"confirm": None}
    assert rounds.reason("confirm") == "new"
    for responses in ({"confirm": yes(ok=True)}, {}, {"confirm": yes(ok=False)}, {"confirm": DECLINE}):
        assert rounds.round({"confirm": SURE}, responses) == {"confirm": YES}
        assert rounds.asked == {}


@pytest.mark.parametrize(("options", "attempts"), [({}, 3), ({"attempts": 1}, 1), ({"attempts": 5}, 5)])
def test_last_invalid_answer_ends_the_call_naming_the_question(options: dict[str, Any], attempts: int) -> None:
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
    assert (caught.value.name, caught.value.attempts) == ("measure", attempts)


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


@pytest.mark.parametrize(("response", "reason", "left"), [(ACCEPT, "unfinished", None), (DECLINE, None, "decline")])
def test_reply_to_a_page_waits_for_its_own_wording(
    response: ElicitResult, reason: str | None, left: str | None
) -> None:
    """Whether the page is done is asked of `done=`, and only about the wording to which the user replied."""

    def page(message: str) -> ElicitUrl[str]:
        return ElicitUrl(message, "https://pay.example/1", done=lambda: None)

    def pay() -> ElicitUrl[str]:
        return page("Pay 5.")

    rounds = Rounds(alone(pay))
    assert rounds.round({"pay": page("Pay 5.")}) == {"pay": None}
    (outcome,) = rounds.round({"pay": page("Pay 5.")}, {"pay": response}).values()
    assert (None if outcome is None else outcome.action.word) == left
    assert rounds.answers.open.get("pay") is None if reason is None else rounds.reason("pay") == reason
    assert rounds.round({"pay": page("Pay 500.")}) == {"pay": None}
    assert rounds.reason("pay") == "reworded"
    assert not rounds.answers.open["pay"].consented


def question(number: int, **options: Any) -> Elicit[Choice]:
    return Elicit(f"It is {number} o'clock. Sure?", Choice, **options)


def test_question_losing_two_answers_in_a_row_is_volatile() -> None:
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": question(1)})
    rounds.round({"confirm": question(2)}, {"confirm": yes(ok=True)})
    with pytest.raises(QuestionVolatile, match="remember=True") as caught:
        rounds.round({"confirm": question(3)}, {"confirm": yes(ok=True)})
    assert (caught.value.name, caught.value.changed) == ("confirm", ("message",))


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


def asker(about: str) -> Callable[[], Any]:
    """Closures of this factory share their name."""

    def ask() -> Elicit[Choice]:
        return Elicit(f"Sure of {about}?", Choice)

    return ask


RED, BLUE = asker("red"), asker("blue")


@pytest.mark.parametrize("is_recorded", [False, True])
def test_an_answer_follows_a_rename(is_recorded: bool) -> None:
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": confirm()})
    answer: dict[str, Any] = {"confirm": yes(ok=True)}
    if is_recorded:
        rounds.round({"confirm": confirm()}, answer)
        answer = {}
    rounds.redeploy(alone(confirm, name="sure", former_names=("older", "confirm")))
    assert rounds.round({"sure": confirm()}, answer) == {"sure": YES}
    assert list(rounds.entries) == ["sure"]


def test_new_answer_replaces_the_one_under_a_former_name() -> None:
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": confirm()})
    rounds.round({"confirm": confirm()}, {"confirm": yes(ok=True)})
    rounds.redeploy(alone(confirm, name="sure", former_names=("confirm",)))
    other = Elicit("Really?", Choice)
    assert rounds.round({"sure": other}) == {"sure": None}
    assert rounds.round({"sure": other}, {"sure": yes(ok=False)}) == {"sure": NO}
    assert list(rounds.entries) == ["sure"]


@pytest.mark.parametrize(
    ("closures", "expected"),
    [
        ({"b": BLUE, "a": RED}, {"ask@b": NO, "ask@a": YES}),
        ({"x": BLUE, "y": RED}, {"ask@x": NO, "ask@y": YES}),
        ({"a": BLUE, "b": RED}, {"ask@a": None, "ask@b": None}),
    ],
    ids=["in the other order", "renamed: found by their wording", "swapped: asked again"],
)
def test_rearranged_closures_never_swap_their_answers(closures: dict[str, Any], expected: dict[str, Any]) -> None:
    rounds = Rounds(plan_of(a=RED, b=BLUE))
    rounds.round({"ask@a": RED(), "ask@b": BLUE()})
    rounds.redeploy(plan_of(**closures))
    questions = {f"ask@{path}": closure() for path, closure in closures.items()}
    assert rounds.round(questions, {"ask@a": yes(ok=True), "ask@b": yes(ok=False)}) == expected


def test_question_gaining_a_path_finds_its_bare_answer() -> None:
    rounds = Rounds(plan_of(a=RED))
    rounds.round({"ask": RED()})
    rounds.redeploy(plan_of(a=RED, b=BLUE))
    assert rounds.round({"ask@a": RED(), "ask@b": BLUE()}, {"ask": yes(ok=True)}) == {"ask@a": YES, "ask@b": None}


def test_answer_of_two_questions_or_for_two_is_not_adopted() -> None:
    rounds = Rounds(plan_of(a=RED))
    rounds.round({"ask": RED()})
    rounds.redeploy(plan_of(a=RED, b=asker("red")))
    assert rounds.round({"ask@a": RED(), "ask@b": RED()}, {"ask": yes(ok=True)}) == {"ask@a": None, "ask@b": None}
    rounds = Rounds(plan_of(a=RED, b=asker("red")))
    rounds.round({"ask@a": RED(), "ask@b": RED()})
    rounds.redeploy(plan_of(c=RED))
    assert rounds.round({"ask": RED()}, {"ask@a": yes(ok=True), "ask@b": yes(ok=False)}) == {"ask": None}


def test_answer_is_not_adopted_while_another_candidate_is_unseen() -> None:
    rounds = Rounds(plan_of(a=RED))
    rounds.round({"ask": RED()})
    rounds.redeploy(plan_of(a=RED, b=BLUE))
    assert rounds.journal is not None
    answers = answers_of(rounds.plan, rounds.journal, build="b2")
    answers.deliver({"ask": yes(ok=True)}, rounds.journal.asked)
    answers.settle(rounds.node("ask@a"), RED())
    assert not answers.known.adopt(answers.open, lambda index: index == rounds.node("ask@b").index)
    assert answers.known.adopt(answers.open, lambda index: False)
    assert answers.settle(rounds.node("ask@a"), RED()) == YES


def test_unread_decline_of_another_build_stays_a_decline() -> None:
    rounds = Rounds(plan_of(a=confirm, b=RED))
    rounds.round({"confirm": confirm(), "ask": RED()})
    rounds.redeploy(alone(confirm))
    rounds.round({"confirm": confirm()}, {"confirm": yes(ok=True), "ask": DECLINE})
    rounds.redeploy(plan_of(a=confirm, b=RED))
    assert rounds.round({"confirm": confirm(), "ask": RED()})["ask"] == Outcome(action=Action.DECLINE)


def test_adopted_answer_beside_a_pending_question_is_read_once() -> None:
    older = Rounds(plan_of(a=RED, b=confirm))
    older.round({"ask": RED(), "confirm": confirm()})
    older.round({"ask": RED(), "confirm": confirm()}, {"ask": yes(ok=True)})
    older.round({"ask": Elicit("Sure of pink?", Choice), "confirm": confirm()})
    older.redeploy(plan_of(x=RED, y=BLUE))
    outcomes = older.round({"ask@x": RED(), "ask@y": BLUE()}, {"ask": yes(ok=False), "confirm": yes(ok=True)})
    assert outcomes == {"ask@x": YES, "ask@y": None}
