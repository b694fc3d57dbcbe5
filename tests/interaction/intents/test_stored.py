"""Stored calls with intents: tasks, pages and approvals. Each intent has one stored call, which all requests join."""

from __future__ import annotations

import sqlite3
from typing import Any

import anyio
import pytest

from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.once import exactly_once
from roundtrip.system import System
from roundtrip.testing import Clock
from tests.interaction.intents.offices import RECALLED, Office, opened, peer_of
from tests.kit.approving import Person
from tests.kit.page_users import Browser, client_of, handle_in, link_in, resume, text_of
from tests.kit.peer import text_of as text_of_task

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]


async def test_both_requests_get_the_same_task_and_its_result() -> None:
    office = Office()
    async with opened(office) as url, peer_of(url) as one, peer_of(url) as two:
        first, second = await one.call("report", order="a"), await two.call("report", order="a")
        assert first["taskId"] == second["taskId"]
        await two.asked(second["taskId"], "word")
        await one.answer(first["taskId"], word="tea")
        for peer in (one, two):
            task = await peer.until(first["taskId"])
            assert text_of_task(task) == "a tea 1 no. 1"
        again = await two.call("report", order="a")
        assert again["content"][0]["text"] == "a tea 1 no. 1"
        assert RECALLED in again["_meta"]
        assert office.steps == ["a"]


async def test_another_caller_gets_no_handle_to_a_shared_task() -> None:
    office = Office()
    async with opened(office) as url, peer_of(url) as one, peer_of(url, "bob") as two:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exactly_once, "PATIENCE_SECONDS", 0.05)
            task = await one.call("shared", order="a")
            refused = await two.send("tools/call", name="shared", arguments={"order": "a"})
        assert refused["error"]["data"]["reason"] == "still_running"
        assert task["taskId"] not in str(refused)
        assert "error" in await two.send("tasks/get", taskId=task["taskId"])
        await one.asked(task["taskId"], "word")
        await one.answer(task["taskId"], word="tea")
        await one.until(task["taskId"])
        assert (await two.call("shared", order="a"))["content"][0]["text"] == "a tea no. 1"


async def test_a_client_without_tasks_waits_for_the_end_of_a_task() -> None:
    office = Office()
    async with opened(office) as url, peer_of(url) as one, client_of(url) as two:
        task = await one.call("report", order="a")
        await one.asked(task["taskId"], "word")
        results: list[Any] = []

        async def wait() -> None:
            results.append(await two.call_tool("report", {"order": "a"}))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await one.answer(task["taskId"], word="tea")
        assert [text_of(result) for result in results] == ["a tea 1 no. 1"]


async def test_other_arguments_do_not_join_a_task() -> None:
    office = Office()
    async with opened(office) as url, peer_of(url) as peer:
        await peer.call("report", order="a")
        refused = await peer.call("report", order="a", copies=100)
        assert refused["isError"]
        assert "other arguments" in refused["content"][0]["text"]


async def test_a_cancelled_task_lets_the_next_call_begin() -> None:
    office = Office()
    async with opened(office) as url, peer_of(url) as peer:
        first = await peer.call("report", order="a")
        await peer.asked(first["taskId"], "word")
        await peer.ask("tasks/cancel", taskId=first["taskId"])
        second = await peer.call("report", order="a")
        assert second["taskId"] != first["taskId"]
        third = await peer.call("report", order="a")
        assert third["taskId"] == second["taskId"]


@pytest.mark.parametrize("order", ["quick", "slow"])
async def test_a_call_that_may_become_a_task_runs_once(order: str) -> None:
    office = Office()
    async with opened(office) as url, peer_of(url) as peer:
        first = await peer.call("later", order=order)
        office.go_on.set()
        if order == "slow":
            second = await peer.call("later", order=order)
            assert second.get("taskId", first["taskId"]) == first["taskId"]
            first = (await peer.until(first["taskId"]))["result"]
        again = await peer.call("later", order=order)
        assert again["content"] == first["content"]
        assert office.ran == [order]


async def test_two_agents_of_one_user_share_a_page() -> None:
    office = Office()
    async with opened(office) as url, client_of(url) as one, client_of(url) as two:
        asked, again = await one.call_tool("pick", {"order": "a"}), await two.call_tool("pick", {"order": "a"})
        assert handle_in(asked) == handle_in(again)
        assert link_in(asked) == link_in(again)
        await Browser(url, "ann").answer_all(link_in(asked), {"Which word?": "tea"})
        assert text_of(await resume(one, asked)) == "a tea no. 1"
        assert text_of(await two.call_tool("pick", {"order": "a"})) == "a tea no. 1"
        assert office.ran == ["a"]
        assert office.steps == ["a"]
        assert len(office.keys) > 1
        assert len(set(office.keys)) == 1


async def test_failed_task_may_run_again() -> None:
    office = Office()
    async with opened(office) as url, peer_of(url) as peer:
        first = await peer.until((await peer.call("fail", order="a"))["taskId"])
        assert first["result"]["isError"]
        second = await peer.until((await peer.call("fail", order="a"))["taskId"])
        assert text_of_task(second) == "a no. 2"


async def test_two_calls_have_one_entry_in_the_inbox() -> None:
    office = Office()
    async with opened(office) as url, client_of(url) as one, client_of(url) as two:
        asked, again = await one.call_tool("refund", {"order": "a"}), await two.call_tool("refund", {"order": "a"})
        assert handle_in(asked) == handle_in(again)
        fay = Person(url, "fay")
        await fay.one("Refund")
        assert len(await fay.inbox()) == 1
        await fay.decide("approve", "fine")
        assert text_of(await resume(one, asked)) == "a no. 1"
        assert text_of(await two.call_tool("refund", {"order": "a"})) == "a no. 1"


async def test_a_rejection_is_final() -> None:
    office = Office()
    async with opened(office) as url, client_of(url) as client:
        asked = await client.call_tool("refund", {"order": "a"})
        fay = Person(url, "fay")
        await fay.decide("reject", "no", start="Refund")
        rejected = await resume(client, asked)
        assert rejected.is_error
        again = await client.call_tool("refund", {"order": "a"})
        assert text_of(again) == text_of(rejected)
        assert not await fay.inbox()
        assert office.ran == []


async def test_a_store_that_has_lost_the_call_runs_nothing(tmp_path: Any) -> None:
    office = Office(ledger=SqliteLedger(tmp_path / "ledger.db"))
    async with opened(office) as url, peer_of(url) as peer:
        task = await peer.call("report", order="a")
        await peer.asked(task["taskId"], "word")
        with sqlite3.connect(tmp_path / "ledger.db") as db:
            db.execute("DELETE FROM tasks")
        lost = await peer.call("report", order="a")
        assert lost["isError"]
        assert "unknown" in lost["content"][0]["text"]
        assert office.ran == []


async def test_declined_page_is_not_shown_again_for_a_while() -> None:
    clock = Clock()
    system = System(time=clock, monotonic=clock)
    office = Office(ledger=MemoryLedger(system=system), system=system)
    async with opened(office) as url, client_of(url) as client:
        asked = await client.call_tool("pick", {"order": "a"})
        browser = Browser(url, "ann")
        await browser.send(link_in(asked), (await browser.open(link_in(asked))).text, decision="decline")
        declined = await resume(client, asked)
        assert declined.is_error
        again = await client.call_tool("pick", {"order": "a"})
        assert text_of(again) == text_of(declined)
        clock.advance(6 * 60)
        anew = await client.call_tool("pick", {"order": "a"})
        assert handle_in(anew) != handle_in(asked)


async def test_end_of_a_stored_call_is_kept_as_long_as_its_intent() -> None:
    clock = Clock()
    system = System(time=clock, monotonic=clock)
    office = Office(ledger=MemoryLedger(system=system), system=system)
    async with opened(office) as url, client_of(url) as client:
        asked = await client.call_tool("pick", {"order": "a"})
        await Browser(url, "ann").answer_all(link_in(asked), {"Which word?": "tea"})
        clock.advance(23 * 3600)
        assert text_of(await client.call_tool("pick", {"order": "a"})) == "a tea no. 1"
        assert office.ran == ["a"]


async def test_decline_that_reaches_no_page_is_an_error_and_no_success() -> None:
    office = Office()
    async with opened(office) as url, client_of(url) as paged:
        async with peer_of(url, declares=False, elicitation={"form": {}}) as one:
            asked = await one.call("pick", order="a")
            await paged.call_tool("pick", {"order": "a"})
            declined = await one.ask(
                "tools/call",
                name="pick",
                arguments={"order": "a"},
                inputResponses={"word": {"action": "decline"}},
                requestState=asked["requestState"],
            )
        assert declined["isError"]
        assert "answered otherwise" in declined["content"][0]["text"]


async def test_task_that_timed_out_does_not_run_again() -> None:
    office = Office()
    async with opened(office) as url, peer_of(url) as peer:
        first = await peer.until((await peer.call("hang", order="a"))["taskId"])
        assert first["status"] == "failed"
        await peer.call("hang", order="a")
        assert office.ran == ["a"]


async def test_rejection_is_final_even_if_failures_run_again() -> None:
    office = Office()
    async with opened(office) as url, client_of(url) as client:
        asked = await client.call_tool("retried_refund", {"order": "a"})
        fay = Person(url, "fay")
        await fay.decide("reject", "no", start="Refund")
        assert (await resume(client, asked)).is_error
        assert (await client.call_tool("retried_refund", {"order": "a"})).is_error
        assert not await fay.inbox()
