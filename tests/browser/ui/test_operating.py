"""Operators at work: a fleet that is killed, a stored call that is cancelled, answers of a test user, and forks."""

import json
import os
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from roundtrip.testing import User
from roundtrip.trace.writing.audit import user_of_system
from tests.browser.conftest import Tab, expect
from tests.browser.ui.asking_tasks import begin
from tests.interaction.tasks import workshops
from tests.kit.hosts import WAIT, HttpProcess
from tests.kit.instances import ROUNDS, shop
from tests.kit.operated import Operated, operating
from tests.kit.peer import peers

T = TypeVar("T")
SHOP = "tests.interaction.tasks.workshops:shop"


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run asynchronous work in a thread, as the browser's own loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, work).result(WAIT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    monkeypatch.setenv(workshops.FOLDER, str(tmp_path))
    monkeypatch.setenv("ROUNDTRIP_TRACE", f"{folder}/")
    monkeypatch.setenv("ROUNDTRIP_TRACE_REVEAL", "all")
    return folder


@pytest.fixture
def ui(folder: Path) -> Generator[Operated]:
    with operating("--server", SHOP, "--test-user", str(folder)) as served:
        yield served
        assert served.end() == 130


async def finish(*tasks: str) -> list[dict[str, Any]]:
    """Return tasks when they have ended."""
    async with peers(workshops.shop()) as (peer,):
        return [await peer.until(task) for task in tasks]


async def asked(task: str, key: str) -> None:
    """Wait until a task asks."""
    async with peers(workshops.shop()) as (peer,):
        await peer.asked(task, key)


def open_page(tab: Tab, address: str) -> None:
    tab.page.goto(address)
    tab.page.wait_for_selector("html[data-ready]")


def test_operator_cancels_answers_and_forks(tab: Tab, ui: Operated, folder: Path) -> None:
    kept, cancelled = run(begin)
    page = tab.page

    # Cancel in the list of tasks.
    open_page(tab, f"{ui.url}tasks")
    call = cancelled.partition(".")[0]
    page.get_by_role("button", name=f"Cancel {call}").click()
    page.get_by_role("button", name="Cancel the call").click()
    expect(page.locator("#acted")).to_have_text("The call is cancelled.")
    (line,) = [json.loads(text) for text in (folder / "audit.jsonl").read_text().splitlines()]
    assert (line["action"], line["call"], line["by"]) == ("cancel", call, user_of_system())
    open_page(tab, f"{ui.url}actions")
    expect(page.locator("#rows")).to_contain_text("cancel")
    page.get_by_role("link", name=call).click()
    expect(page.locator("#log-lines")).to_contain_text(user_of_system())
    expect(page.locator("#state")).to_contain_text("failed")

    # Answer another one as a test user, first wrongly.
    call = kept.partition(".")[0]
    open_page(tab, f"{ui.url}call?id={call}")
    card = page.locator("#stored-questions")
    card.get_by_role("textbox").fill("many")
    card.get_by_role("button", name="Answer").click()
    expect(card).to_contain_text("whole number")
    card.get_by_role("textbox").fill("3")
    card.get_by_role("button", name="Answer").click()
    expect(page.locator("#acted")).to_have_text("The answer is stored.")
    run(lambda: asked(kept, "b"))
    expect(card).to_contain_text("B?")
    card.get_by_role("textbox").fill("4")
    card.get_by_role("button", name="Answer").click()
    ends = run(lambda: finish(kept, cancelled))
    assert [end["status"] for end in ends] == ["completed", "cancelled"]
    assert ends[0]["result"]["content"][0]["text"] == "3 4 7"
    expect(page.locator("#state")).to_contain_text("completed")

    # Let the recorded call go another way.
    page.get_by_role("textbox", name="a", exact=True).fill("5")
    page.get_by_role("button", name="Go this way").click()
    # A process of its own imports the server first.
    expect(page.locator("#forked")).to_contain_text("5 (yours)", timeout=20_000)
    expect(page.locator("#forked")).to_contain_text("3 4 7")
    expect(page.locator("#forked")).to_contain_text("5 4 7")
    # Every byte that the pages loaded came from this server.
    assert all(request.startswith(ui.url) for request in tab.requests)
    # A page that is open would complain that its server is gone.
    page.goto("about:blank")


def test_call_whose_transcript_is_gone_is_answered_on_its_page(tab: Tab, ui: Operated, folder: Path) -> None:
    kept, cancelled = run(begin)
    for path in folder.glob("*.jsonl"):
        path.unlink()
    open_page(tab, f"{ui.url}tasks")
    call = kept.partition(".")[0]
    tab.page.get_by_role("link", name=call).click()
    tab.page.wait_for_selector("html[data-ready]")
    expect(tab.page.locator("#tool")).to_have_text("ask_twice")
    expect(tab.page.locator("#state")).to_contain_text("asking")
    expect(tab.page.locator("#facts")).to_contain_text("they were pruned")
    card = tab.page.locator("#stored-questions")
    for key, number in (("A?", "3"), ("B?", "4")):
        expect(card).to_contain_text(key)
        card.get_by_role("textbox").fill(number)
        card.get_by_role("button", name="Answer").click()
        expect(tab.page.locator("#acted")).to_have_text("The answer is stored.")
        if key == "A?":
            run(lambda: asked(kept, "b"))
    (end,) = run(lambda: finish(kept))
    assert end["result"]["content"][0]["text"] == "3 4 7"
    # A worker's lines are recorded again, from where the transcript begins now.
    expect(tab.page.locator("#state")).to_contain_text("completed")
    tab.page.goto(f"{ui.url}call?id={cancelled.partition('.')[0]}")
    tab.page.wait_for_selector("html[data-ready]")
    tab.page.get_by_role("button", name="Cancel").first.click()
    tab.page.get_by_role("button", name="Cancel the call").click()
    expect(tab.page.locator("#state")).to_contain_text("cancelled")
    expect(tab.page.locator("#log-lines")).to_contain_text(user_of_system())
    tab.page.goto("about:blank")


def test_list_is_live_while_a_fleet_works_and_is_killed(tab: Tab, folder: Path) -> None:
    async def order(first: HttpProcess, rounds: list[Any]) -> None:
        await User(first.url, rounds).call("order", {"title": "Dune"})

    with ExitStack() as stack:
        instances = [stack.enter_context(HttpProcess()) for _ in range(2)]
        for instance in instances:
            instance.start(shop)
        served = stack.enter_context(operating(str(folder)))
        open_page(tab, f"{served.url}?tool=order")
        expect(tab.page.locator("#count")).to_have_text("0 of 0 calls")
        run(lambda: order(instances[0], ROUNDS))
        expect(tab.page.locator("#rows")).to_contain_text("completed")
        instances[0].kill()
        run(lambda: order(instances[1], ROUNDS))
        expect(tab.page.locator("#count")).to_have_text("2 of 2 calls")
        instances[0].start(shop)
        run(lambda: order(instances[0], ROUNDS))
        expect(tab.page.locator("#count")).to_have_text("3 of 3 calls")
        open_page(tab, f"{served.url}fleet")
        assert tab.page.locator("body").inner_text().count(f"{os.uname().nodename}:") >= 3
        assert served.end() == 130
        tab.page.goto("about:blank")
