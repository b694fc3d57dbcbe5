"""Three real processes that share a key and a transcript; one is killed and comes back as another build."""

import random
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult

from roundtrip.machine.table import State
from roundtrip.testing import LegByLeg, LegDelivery, LegRequest, Route, User
from tests.interaction.trace.transcribed import assert_path_is_in_the_table, calls_of
from tests.kit.hosts import WAIT, HttpProcess
from tests.kit.instances import ROUNDS, next_shop, shop

pytestmark = pytest.mark.anyio

CALLS = 100
AT_ONCE = 8
ARGUMENTS = {"title": "Dune"}
REPLIES = {"sure": {"ok": True}, "how_many": {"copies": 2}, "wrap": {"ok": True}}


class Chance:
    """Route on which each leg goes to a random instance."""

    name = "chance"

    def __init__(self, seed: int, urls: list[str]) -> None:
        self._choose = random.Random(seed).choice
        self._urls = urls

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        await route.fleet.go_to(self._choose(self._urls))
        return await route.onward(leg)


async def play(number: int, urls: list[str]) -> None:
    user = User(urls, REPLIES, network=Chance(number, urls))
    assert not (await user.call("order", title=f"book {number}")).is_error


@pytest.mark.timeout(300)
async def test_a_hundred_calls_are_recorded_completely_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "calls.jsonl"
    monkeypatch.setenv("ROUNDTRIP_TRACE", str(path))
    with HttpProcess() as a, HttpProcess() as b, HttpProcess() as c:
        for instance in (a, b, c):
            instance.start(shop)
        numbers = iter(range(CALLS))
        urls = [instance.url for instance in (a, b, c)]

        async def some() -> None:
            for number in numbers:
                await play(number, urls)

        with anyio.fail_after(240):
            async with anyio.create_task_group() as group:
                for _ in range(AT_ONCE):
                    group.start_soon(some)
        # A killed process loses the lines of its last moment.
        for instance in (a, b, c):
            instance.stop()
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


def facts_of(result: Any) -> dict[str, Any]:
    assert isinstance(result, CallToolResult)
    assert not result.is_error
    assert result.structured_content is not None
    return result.structured_content


async def test_call_survives_its_process_a_new_build_and_other_clocks() -> None:
    with HttpProcess() as first, HttpProcess() as fast, HttpProcess() as slow:
        for instance, skew in ((first, 0.0), (fast, 30.0), (slow, -30.0)):
            instance.start(shop, skew=skew)
        began_at = first.pid
        hopper = LegByLeg([first.url, fast.url, first.url, slow.url])
        with anyio.fail_after(2 * WAIT):
            await hopper.leg("order", ARGUMENTS)
            first.kill()
            await hopper.leg("order", ARGUMENTS, answers=ROUNDS[0], state=hopper.token)
            first.start(next_shop)
            await hopper.leg("order", ARGUMENTS, answers=ROUNDS[1], state=hopper.token)
            assert list(hopper.questions) == ["wrap"]
            last: dict[str, Any] = {"answers": ROUNDS[2], "state": hopper.token}
            on_the_old = facts_of(await hopper.leg("order", ARGUMENTS, **last))
            on_the_new = facts_of(await LegByLeg([first.url]).leg("order", ARGUMENTS, **last))
        bought = {"title": "Dune", "price": began_at, "copies": 3, "wrapped": False}
        assert on_the_old == {**bought, "served_by": slow.pid}
        assert on_the_new == {**bought, "served_by": first.pid, "discount": 5}
        assert first.pid != began_at
