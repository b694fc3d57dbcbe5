"""The reasons for which questions are asked, as the trace shows them: one test per reason."""

from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, field_validator

from roundtrip import Elicit, Resolve
from roundtrip.engine.answers import Answers
from roundtrip.machine.facts import AnswerRead, AnswerReused, AnswersIgnored, Reason
from roundtrip.questions.wire import PendingQuestion
from roundtrip.resolvers.plan import Plan
from tests.kit.shops import Choice
from tests.kit.tables import check_each
from tests.unit.engine.rounds import Rounds, alone, answers_of, plan_of, yes


class Wider(BaseModel):
    ok: bool
    note: str = ""


class Lenient(BaseModel):
    size: int


class Narrow(BaseModel):
    """Form of `Lenient`, with a check that no schema can express."""

    size: int

    @field_validator("size")
    @classmethod
    def _is_even(cls, size: int) -> int:
        if size % 2:
            raise ValueError("must be even")
        return size


Narrow.__name__ = "Lenient"

SURE = Elicit("Sure?", Choice)


def confirm() -> Elicit[Choice]:
    return SURE


def other() -> Elicit[Choice]:
    return Elicit("Other?", Choice)


def measure() -> Elicit[Lenient]:
    return Elicit("How big?", Lenient)


def put(rounds: Rounds, key: str) -> PendingQuestion:
    return rounds.answers.open[key]


def test_a_changed_question_says_what_of_it_changed() -> None:
    def check(asked: Elicit[Any], reason: Reason, changed: tuple[str, ...], *, was_read: bool) -> None:
        rounds = Rounds(alone(confirm))
        rounds.round({"confirm": SURE})
        answer: dict[str, Any] = {"confirm": yes(ok=True)}
        if was_read:
            rounds.round({"confirm": SURE}, answer)
            answer = {}
        rounds.redeploy(alone(confirm))
        rounds.round({"confirm": asked}, answer)
        assert (put(rounds, "confirm").reason, put(rounds, "confirm").changed) == (reason, changed)

    rows = [
        (Elicit("Really?", Choice), Reason.REWORDED, ("message",)),
        (Elicit("Sure?", Wider), Reason.SCHEMA_CHANGED, ("schema",)),
        (Elicit("Really?", Wider), Reason.SCHEMA_CHANGED, ("message", "schema")),
    ]
    for was_read in (False, True):
        check_each(rows, partial(check, was_read=was_read))


# Other facts.


def watched(plan: Plan, rounds: Rounds, *, build: str = "b1") -> tuple[Answers, list[object]]:
    facts: list[object] = []
    return answers_of(plan, rounds.journal, build=build, watch=facts.append), facts


def test_each_answer_is_recorded_with_its_use() -> None:
    plan = plan_of(a=confirm, b=other, c=measure)
    rounds = Rounds(plan)
    rounds.round({"confirm": SURE, "other": other(), "measure": measure()})
    assert rounds.journal is not None
    answers, facts = watched(plan, rounds)
    replies = {"confirm": yes(ok=True), "other": yes(ok=False), "measure": yes(size="?"), "stranger": yes()}
    answers.deliver(replies, rounds.journal.asked)
    answers.settle(rounds.node("confirm"), SURE)
    answers.settle(rounds.node("other"), Elicit("Otherwise?", Choice))
    answers.settle(rounds.node("measure"), measure())
    assert facts == [
        AnswersIgnored(1),
        AnswerRead("confirm", "accept", "taken", {"ok": True}),
        AnswerRead("other", "accept", "lost", {"ok": False}),
        AnswerRead("measure", "accept", "invalid", {"size": "?"}),
    ]


def test_token_answers_are_reported_as_reused_and_fresh_ones_not() -> None:
    plan = plan_of(a=confirm, b=other)
    rounds = Rounds(plan)
    rounds.round({"confirm": SURE})
    rounds.round({"confirm": SURE, "other": other()}, {"confirm": yes(ok=True)})
    assert rounds.journal is not None
    answers, facts = watched(plan, rounds)
    answers.deliver({"other": yes(ok=True)}, rounds.journal.asked)
    for _ in range(2):
        answers.settle(rounds.node("confirm"), SURE)
        answers.settle(rounds.node("other"), other())
    assert [fact for fact in facts if isinstance(fact, AnswerReused)] == [AnswerReused("confirm")] * 2


def test_answer_that_was_lenient_is_asked_again() -> None:
    """It was valid when the user gave it, so the repeated question has no complaint."""
    found: list[tuple[Reason, object]] = []
    for redeploys in (True, False):
        rounds = Rounds(alone(measure))
        rounds.round({"measure": measure()})
        rounds.round({"measure": measure()}, {"measure": yes(size=3)})
        if redeploys:
            rounds.redeploy(alone(measure))
        rounds.round({"measure": Elicit("How big?", Narrow)})
        found.append((put(rounds, "measure").reason, put(rounds, "measure").complaint))
    assert found == [(Reason.OTHER_BUILD, None), (Reason.INVALID, None)]


def test_question_that_only_another_build_asks_says_so() -> None:
    def deliver(sure: Annotated[Any, Resolve(confirm)]) -> Elicit[Choice]:
        return Elicit("By post?", Choice)

    rounds = Rounds(alone(confirm))
    rounds.round({"confirm": SURE})
    rounds.redeploy(plan_of(a=confirm, b=other, c=deliver))
    rounds.round({"confirm": SURE, "other": other(), "deliver": other()}, {"confirm": yes(ok=True)})
    # What is based on an answer comes in a later round of any build.
    assert (put(rounds, "other").reason, put(rounds, "deliver").reason) == (Reason.OTHER_BUILD, Reason.NEW)
