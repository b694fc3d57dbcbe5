"""What an operator does with a stored call, and what the next call with the same intent then gets."""

from __future__ import annotations

from typing import Any

import pytest

from roundtrip import Context
from roundtrip.ledger.machines import StoredState
from tests.interaction.intents.offices import (
    RECALLED,
    End,
    Office,
    book_of,
    call_in,
    end,
    opened,
    operator_of,
    peer_of,
)
from tests.kit.approving import Person
from tests.kit.page_users import Browser, client_of, handle_in, link_in, resume, text_of
from tests.kit.peer import text_of as text_of_task
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio

ENDS: Any = pytest.mark.parametrize("action", ["cancel", "expire"])


class StepOffice(Office):
    """Office with a task that asks twice, with a step between the questions, and one whose body may run again."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

        @self.server.tool(task=True, once_per="{order}")
        async def twice(order: str, ctx: Context) -> str:
            """Ask twice."""
            first = await ctx.ask("first", "First?", str)
            await ctx.step("between", lambda: self.steps.append(order))
            second = await ctx.ask("second", "Second?", str)
            self.ran.append(order)
            return f"{order} {first} {second} no. {len(self.ran)}"

        @self.server.tool(task=True, once_per="{order}")
        async def hold(order: str) -> str:
            """Hold until the test lets go."""
            self.ran.append(order)
            await self.go_on.wait()
            return f"{order} no. {len(self.ran)}"

        @self.server.tool(task=True, once_per="{order}", on_unknown="rerun")
        async def again(order: str, ctx: Context) -> str:
            """Ask, and run again after a crash."""
            word = await ctx.ask("word", "Which word?", str)
            self.ran.append(order)
            return f"{order} {word} no. {len(self.ran)}"


@ENDS
@pytest.mark.parametrize("tool", ["report", "again"])
async def test_call_that_was_ended_before_its_body_lets_the_next_one_begin(action: End, tool: str) -> None:
    office = StepOffice()
    async with opened(office) as url, peer_of(url) as peer:
        first = await peer.call(tool, order="a")
        await peer.asked(first["taskId"], "word")
        await end(office, action, call_in(first))
        second = await peer.call(tool, order="a")
        assert second["taskId"] != first["taskId"]
        assert (await peer.call(tool, order="a"))["taskId"] == second["taskId"]
        await peer.asked(second["taskId"], "word")
        await peer.answer(second["taskId"], word="tea")
        assert text_of_task(await peer.until(second["taskId"])).startswith("a tea")
    assert office.ran == ["a"]


@ENDS
async def test_steps_of_an_ended_call_do_not_run_again(action: End) -> None:
    office = StepOffice()
    async with opened(office) as url, peer_of(url) as peer:
        first = await peer.call("twice", order="a")
        await peer.asked(first["taskId"], "first")
        await peer.answer(first["taskId"], first="1")
        await peer.asked(first["taskId"], "second")
        await end(office, action, call_in(first))
        second = await peer.call("twice", order="a")
        await peer.asked(second["taskId"], "first")
        await peer.answer(second["taskId"], first="1")
        await peer.asked(second["taskId"], "second")
        await peer.answer(second["taskId"], second="2")
        assert text_of_task(await peer.until(second["taskId"])) == "a 1 2 no. 1"
    assert office.steps == ["a"]


@ENDS
async def test_call_that_was_ended_within_its_body_is_not_repeated(action: End) -> None:
    office = StepOffice()
    async with opened(office) as url, peer_of(url) as peer:
        task = await peer.call("hold", order="a")
        await until(lambda: bool(office.ran))
        await end(office, action, call_in(task))
        again = await peer.send("tools/call", name="hold", arguments={"order": "a"})
        assert ("cancelled" if action == "cancel" else "expired") in str(again)
        office.go_on.set()
    assert office.ran == ["a"]


async def test_lost_call_is_joined_again_once_it_is_retried() -> None:
    office = StepOffice()
    async with opened(office) as url, peer_of(url) as peer:
        task = await peer.call("hold", order="a")
        await until(lambda: bool(office.ran))
        await book_of(office).change(call_in(task), lambda entry, now: entry.end_lease(now))
        lost = await peer.send("tools/call", name="hold", arguments={"order": "a"})
        assert "unknown" in str(lost)
        office.go_on.set()
        await operator_of(office).retry(call_in(task), even_once=True)
        joined = await peer.call("hold", order="a")
        assert joined.get("taskId", task["taskId"]) == task["taskId"]
        assert text_of_task(await peer.until(task["taskId"])) == "a no. 2"
        recalled = await peer.call("hold", order="a")
        assert recalled["content"][0]["text"] == "a no. 2"
        assert RECALLED in recalled["_meta"]


async def test_answer_of_an_operator_ends_the_call_for_all() -> None:
    office = StepOffice()
    async with opened(office) as url, peer_of(url) as one, peer_of(url) as two:
        task = await one.call("report", order="a")
        await one.asked(task["taskId"], "word")
        await operator_of(office).answer(call_in(task), "word", {"action": "accept", "content": {"value": "tea"}})
        assert text_of_task(await one.until(task["taskId"])) == "a tea 1 no. 1"
        assert (await two.call("report", order="a"))["content"][0]["text"] == "a tea 1 no. 1"
    assert office.ran == ["a"]


@ENDS
async def test_ended_page_and_approval_begin_anew(action: End) -> None:
    office = StepOffice()
    async with opened(office) as url, client_of(url) as client:
        asked = await client.call_tool("pick", {"order": "a"})
        await end(office, action, handle_in(asked).partition(".")[0])
        anew = await client.call_tool("pick", {"order": "a"})
        assert handle_in(anew) != handle_in(asked)
        await Browser(url, "ann").answer_all(link_in(anew), {"Which word?": "tea"})
        assert text_of(await resume(client, anew)) == "a tea no. 1"
        assert office.steps == ["a"]
        waiting = await client.call_tool("refund", {"order": "a"})
        fay = Person(url, "fay")
        approval = await fay.one("Refund")
        await end(office, action, approval.partition(".")[0])
        assert await fay.inbox() == []
        assert handle_in(await client.call_tool("refund", {"order": "a"})) != handle_in(waiting)
        assert await fay.one("Refund") != approval
        await fay.decide("approve", "fine")
        assert text_of(await client.call_tool("refund", {"order": "a"})) == "a no. 2"


async def test_list_of_stored_calls_has_one_call_for_each_intent() -> None:
    office = StepOffice()
    async with opened(office) as url, peer_of(url) as peer:
        task, *_ = [await peer.call("report", order="a") for _ in range(3)]
        await peer.asked(task["taskId"], "word")
        (listed,) = await book_of(office).store.list(limit=9)
        assert (listed.call_id, listed.state) == (call_in(task), StoredState.ASKING)
        assert await operator_of(office).find(call_in(task)[:6]) == call_in(task)
