"""A leg's walk: values, outcomes, questions, and nothing run twice."""

from typing import Annotated, Any

import anyio
import pytest

from roundtrip import Elicit, ElicitationResult, ListRoots, Resolve, Sample
from roundtrip.machine.journal import Action
from roundtrip.questions.outcomes import Outcome
from tests.kit.shops import Choice
from tests.kit.waiting import WAIT
from tests.unit.resolvers.walking import Memory, plan_of, start, walk

pytestmark = pytest.mark.anyio

DECLINED = Outcome(action=Action.DECLINE)
CANCELLED = Outcome(action=Action.CANCEL)


async def confirm() -> Elicit[Choice]:
    return Elicit("Sure?", Choice)


async def test_unanswered_question_holds_back_its_consumers() -> None:
    async def after(choice: Annotated[Choice, Resolve(confirm)]) -> int:
        raise AssertionError("it has nothing to run with")

    async def beside() -> int:
        return 1

    def tool(a: Annotated[int, Resolve(after)], b: Annotated[int, Resolve(beside)]) -> None: ...

    plan = plan_of(tool)
    one = start(plan)
    await one.advance()
    assert [node.key for node in one.waiting_nodes()] == ["confirm"]
    assert [node.key for node in plan.nodes if one.is_blocked(node.index)] == ["after"]


async def test_questions_wait_in_plan_order() -> None:
    second_asked = anyio.Event()

    async def first() -> Sample:
        await second_asked.wait()
        return Sample("hi", max_tokens=5)

    async def second() -> ListRoots:
        second_asked.set()
        return ListRoots()

    def tool(
        a: Annotated[Any, Resolve(first)], b: Annotated[Any, Resolve(second)], c: Annotated[Choice, Resolve(confirm)]
    ) -> None: ...

    one = start(plan_of(tool))
    with anyio.fail_after(WAIT):
        await one.advance()
    assert [node.key for node in one.waiting_nodes()] == ["first", "second", "confirm"]


async def test_an_answer_that_came_goes_on_without_running_anything_twice() -> None:
    runs: list[str] = []

    async def ask() -> Elicit[Choice]:
        runs.append("ask")
        return Elicit("Sure?", Choice)

    async def after(choice: Annotated[Choice, Resolve(ask)]) -> bool:
        runs.append("after")
        return choice.ok

    async def beside() -> int:
        runs.append("beside")
        return 1

    def tool(a: Annotated[bool, Resolve(after)], b: Annotated[int, Resolve(beside)]) -> None: ...

    memory = Memory()
    one = start(plan_of(tool), memory)
    await one.advance()
    memory.answers["ask"] = Choice(ok=True)
    one.settle_waiting()
    await one.advance()
    values: dict[str, Any] = {}
    one.fill(values)
    assert (values, one.waiting) == ({"a": True, "b": 1}, {})
    assert runs == ["ask", "beside", "after"]


async def test_declined_question_ends_the_value_consumers() -> None:
    async def after(choice: Annotated[Choice, Resolve(confirm)]) -> int:
        raise AssertionError("it has nothing to run with")

    def tool(value: Annotated[int, Resolve(after)]) -> None: ...

    for outcome, word in ((DECLINED, "declined"), (CANCELLED, "cancelled")):
        one = start(plan_of(tool), Memory(answers={"confirm": outcome}))
        await one.advance()
        assert str(one.declined) == f"The user {word} the question for parameter 'choice'"
        assert one.waiting == {}


async def test_decline_names_the_value_parameter_and_not_the_outcome_one() -> None:
    async def look(seen: Annotated[ElicitationResult[Choice], Resolve(confirm)]) -> str:
        return seen.action

    def tool(a: Annotated[str, Resolve(look)], b: Annotated[Choice, Resolve(confirm)]) -> None: ...

    one = start(plan_of(tool), Memory(answers={"confirm": DECLINED}))
    await one.advance()
    assert one.declined is not None
    assert one.declined.parameter == "b"


async def test_the_error_of_a_resolver_is_raised_as_it_is() -> None:
    error = ValueError("boom")

    async def fail() -> int:
        await anyio.lowlevel.checkpoint()
        raise error

    def fail_in_a_thread() -> int:
        raise error

    async def beside() -> None:
        await anyio.sleep_forever()

    def alone(a: Annotated[int, Resolve(fail)]) -> None: ...
    def together(a: Annotated[None, Resolve(beside)], b: Annotated[int, Resolve(fail)]) -> None: ...
    def threaded(a: Annotated[None, Resolve(beside)], b: Annotated[int, Resolve(fail_in_a_thread)]) -> None: ...

    for tool in (alone, together, threaded):
        with pytest.raises(ValueError, match="boom") as caught:
            await walk(plan_of(tool))
        assert caught.value is error
