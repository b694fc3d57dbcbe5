"""Answers across builds: renamed, reordered and foreign questions."""

from collections.abc import Callable
from typing import Any

import pytest

from roundtrip import Elicit
from roundtrip.machine.journal import Action
from roundtrip.questions.outcomes import Outcome
from tests.kit.shops import Choice
from tests.unit.engine.rounds import DECLINE, Rounds, alone, answers_of, plan_of, yes

YES, NO = Outcome(Choice(ok=True)), Outcome(Choice(ok=False))


def asker(about: str) -> Callable[[], Any]:
    """Closures of this factory share their name."""

    def ask() -> Elicit[Choice]:
        return Elicit(f"Sure of {about}?", Choice)

    return ask


RED, BLUE = asker("red"), asker("blue")


def confirm() -> Elicit[Choice]:
    return Elicit("Sure?", Choice)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_an_answer_follows_a_rename(is_recorded: bool) -> None:
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": confirm()})
    answer: dict[str, Any] = {"confirm": yes(ok=True)}
    if is_recorded:
        rounds.round({"confirm": confirm()}, answer)
        answer = {}
    rounds.redeploy(alone(confirm, key="sure", was=("older", "confirm")))
    assert rounds.round({"sure": confirm()}, answer) == {"sure": YES}
    assert list(rounds.entries) == ["sure"]


def test_new_answer_replaces_the_one_under_a_former_name() -> None:
    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": confirm()})
    rounds.round({"confirm": confirm()}, {"confirm": yes(ok=True)})
    rounds.redeploy(alone(confirm, key="sure", was=("confirm",)))
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


def test_an_answer_is_not_adopted_where_two_questions_fit_it() -> None:
    twin = asker("red")
    rounds = Rounds(plan_of(a=RED))
    rounds.round({"ask": RED()})
    rounds.redeploy(plan_of(a=RED, b=twin))
    assert rounds.round({"ask@a": RED(), "ask@b": twin()}, {"ask": yes(ok=True)}) == {"ask@a": None, "ask@b": None}


def test_answer_fitting_two_questions_is_not_adopted() -> None:
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
