"""Three instances, each a process, write to one transcript while calls hop between them."""

import random
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from mcp.client import Client
from mcp_types import InputRequiredResult, InputResponse

from roundtrip.machine.table import State
from tests.chaos.instances import shop
from tests.hosts import HttpProcess
from tests.interaction.trace.transcribed import assert_path_is_in_the_table, calls_of
from tests.players import Era, Person, reply_of

pytestmark = pytest.mark.anyio

CALLS = 200
AT_ONCE = 8
REPLIES = {"sure": {"ok": True}, "how_many": {"copies": 2}, "wrap": {"ok": True}}


async def play(number: int, clients: list[Client]) -> None:
    """One call, each leg through the client of an instance that chance has chosen."""
    choose = random.Random(number).choice
    state: str | None = None
    answers: dict[str, InputResponse] | None = None
    for _ in range(len(REPLIES) + 1):
        result = await choose(clients).session.call_tool(
            "order",
            {"title": f"book {number}"},
            input_responses=answers,
            request_state=state,
            allow_input_required=True,
        )
        if isinstance(result, InputRequiredResult):
            state = result.request_state
            answers = {key: reply_of(REPLIES[key]) for key in result.input_requests or {}}


@pytest.mark.timeout(300)
async def test_every_call_of_two_hundred_is_told_completely_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "calls.jsonl"
    monkeypatch.setenv("ROUNDTRIP_TRACE", str(path))
    with HttpProcess() as a, HttpProcess() as b, HttpProcess() as c:
        for instance in (a, b, c):
            instance.start(shop)
        numbers = iter(range(CALLS))
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    Client(instance.url, mode=Era.RETRY.value, elicitation_callback=Person())
                )
                for instance in (a, b, c)
            ]

            async def some() -> None:
                for number in numbers:
                    await play(number, clients)

            with anyio.fail_after(240):
                async with anyio.create_task_group() as group:
                    for _ in range(AT_ONCE):
                        group.start_soon(some)
    traced = calls_of(path)
    assert len(traced) == CALLS
    for call in traced:
        assert call.state is State.COMPLETED
        assert [serving.leg for serving in call.servings] == [1, 2, 3, 4]
        assert all(serving.began is not None and len(serving.lines) == 2 for serving in call.servings)
        asked = [[question.key for question in round_.asked.questions] for round_ in call.rounds]
        assert asked == [["sure"], ["how_many"], ["wrap"]]
        assert [len(round_.answers) for round_ in call.rounds] == [1, 1, 1]
        assert_path_is_in_the_table(call)
    assert len({instance for call in traced for instance in call.instances}) == 3
    assert sum(len(call.instances) > 1 for call in traced) > CALLS / 2
