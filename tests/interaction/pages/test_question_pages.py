"""Questions on pages: for clients that cannot be asked by form, and for calls with many rounds."""

from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp_types import (
    ElicitationCapability,
    ElicitResult,
    FormElicitationCapability,
    UrlElicitationCapability,
)

from roundtrip import Approvals, Approve, Context, Pages, Recorder, Server
from roundtrip.trace.explaining.explanations import explain
from roundtrip.trace.reading.calls import Round
from tests.interaction.pages.ways import modes
from tests.interaction.trace.transcribed import calls_of
from tests.kit.approving import Person, open_shop
from tests.kit.approving import shop as approving_shop
from tests.kit.hosts import hosted
from tests.kit.page_users import (
    BASE,
    STEPS,
    Browser,
    cinema,
    client_of,
    declare_only,
    handle_in,
    link_in,
    reader,
    resume,
    text_of,
    with_pages,
)
from tests.kit.visitors import Visitor
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


ANSWERS = {"Book": "", "Which seat": "3", "How many": "2"}


@modes
async def test_client_that_cannot_be_asked_gets_a_link(mode: str) -> None:
    STEPS.clear()
    async with hosted(with_pages().streamable_http_app()) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("book", {"film": "Solaris"})
        assert not asked.is_error
        browser = Browser(url, "ann")
        assert await browser.answer_all(link_in(asked), ANSWERS) == "Done"
        result = await resume(client, asked)
        assert text_of(result) == "Solaris, row 3, 2"
        assert [seen.split()[0] for seen in browser.seen] == ["Book", "Which", "How"]
    assert STEPS == ["Solaris"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_client_that_declines_the_link_declines_its_questions(
    monkeypatch: pytest.MonkeyPatch, action: Literal["decline", "cancel"]
) -> None:
    declare_only(monkeypatch, ElicitationCapability(url=UrlElicitationCapability()))
    visitor = Visitor(action)
    STEPS.clear()
    async with hosted(with_pages().streamable_http_app()) as url:
        async with client_of(url, elicitation_callback=visitor) as client:
            result = await client.call_tool("book", {"film": "Solaris"})
        assert result.is_error
        assert f"The user {action}" in text_of(result)
        assert STEPS == []
        # Nothing can be answered any more, on any channel.
        (link,) = visitor.urls
        assert await Browser(url, "ann").answer_all(link, {}) == "Done"


async def test_call_that_asks_on_after_a_declined_link_is_asked_on_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    declare_only(monkeypatch, ElicitationCapability(url=UrlElicitationCapability()))
    async with hosted(with_pages().streamable_http_app()) as url:
        browser = Browser(url, "ann")
        visitor = Visitor("decline", "accept", visit=lambda page: browser.answer_all(page.url, {"Why": "too late"}))
        async with client_of(url, elicitation_callback=visitor) as client:
            assert text_of(await client.call_tool("offer")) == "declined, as too late"
        assert len(visitor.urls) == 2
        assert len(set(visitor.urls)) == 1


async def test_link_that_is_declined_while_the_body_runs_declines_the_next_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declare_only(monkeypatch, ElicitationCapability(url=UrlElicitationCapability()))
    server, runs, goes_on = with_pages(wait=0.2), anyio.Event(), anyio.Event()

    @server.tool()
    async def slow(ctx: Context) -> str:
        """Work between two questions."""
        first = await ctx.ask("first", "First?", int)
        runs.set()
        await goes_on.wait()
        return f"{first}, {await ctx.ask('second', 'Second?', int)}"

    async with hosted(server.streamable_http_app()) as url:
        links: list[str] = []

        async def elicited(context: Any, params: Any) -> ElicitResult:
            links.append(params.url)
            if len(links) > 1:
                goes_on.set()
                return ElicitResult(action="accept")
            browser = Browser(url, "ann")
            page = (await browser.open(params.url)).text
            assert (await browser.send(params.url, page, "1")).status_code == 303
            with anyio.fail_after(WAIT):
                await runs.wait()
            return ElicitResult(action="decline")

        async with client_of(url, elicitation_callback=elicited) as client:
            result = await client.call_tool("slow")
        assert result.is_error
        assert "The user declined the question 'second'" in text_of(result)
        assert await Browser(url, "ann").answer_all(links[0], {}) == "Done"


@modes
async def test_repeated_call_gets_the_same_handle(mode: str) -> None:
    async with hosted(with_pages().streamable_http_app()) as url:
        async with client_of(url, mode=mode) as ann, client_of(url, "eve", mode=mode) as eve:
            first, again = [await ann.call_tool("many", {"number": 1}) for _ in range(2)]
            other, foreign = await ann.call_tool("many", {"number": 2}), await eve.call_tool("many", {"number": 1})
        assert handle_in(first) == handle_in(again)
        assert link_in(first) == link_in(again)
        assert len({handle_in(one) for one in (first, other, foreign)}) == 3


async def test_page_is_for_its_user_alone() -> None:
    async with hosted(with_pages().streamable_http_app()) as url, client_of(url) as client:
        asked = await client.call_tool("many", {"number": 1})
        link = link_in(asked)
        page = (await Browser(url, "ann").open(link)).text
        for user, status in (("eve", 404), (None, 401)):
            browser = Browser(url, user)
            assert (await browser.open(link)).status_code == status
            assert (await browser.send(link, page, "1")).status_code == status
        foreign = (await Browser(url, "eve").open(link)).content
        assert foreign == (await Browser(url, "ann").open(f"{link[:-1]}{'x' if link[-1] != 'x' else 'y'}")).content
        async with client_of(url, "eve") as eve:
            stolen = await eve.call_tool("continue_call", {"handle": handle_in(asked)})
            forged = await client.call_tool("continue_call", {"handle": f"{handle_in(asked)[:-2]}zz"})
        assert stolen.is_error
        assert text_of(stolen) == text_of(forged)


async def test_page_takes_over_before_clients_stop() -> None:
    number = 20
    async with hosted(with_pages(authenticate=None).streamable_http_app()) as url:
        browser = Browser(url, None)
        visitor = Visitor(visit=lambda page: browser.answer_all(page.url, {"Number": "2"}), form={"value": 2})
        async with client_of(url, elicitation_callback=visitor) as client:
            assert text_of(await client.call_tool("many", {"number": number})) == str(2 * number)
        assert len(visitor.forms) == 6
        assert len(browser.seen) == number - 6


@pytest.mark.parametrize(("number", "bare"), [(9, True), (11, False)])
async def test_client_with_forms_alone_gets_a_link_before_it_stops(
    monkeypatch: pytest.MonkeyPatch, number: int, *, bare: bool
) -> None:
    forms = FormElicitationCapability()
    declare_only(monkeypatch, ElicitationCapability() if bare else ElicitationCapability(form=forms))
    visitor = Visitor(form={"value": 2})
    async with (
        hosted(with_pages().streamable_http_app()) as url,
        client_of(url, elicitation_callback=visitor) as client,
    ):
        result = await client.call_tool("many", {"number": number})
        if number > len(visitor.forms):
            browser = Browser(url, "ann")
            assert await browser.answer_all(link_in(result), {"Number": "2"}) == "Done"
            result = await resume(client, result)
        assert text_of(result) == str(2 * number)
    assert len(visitor.forms) == 9


async def test_client_with_forms_alone_finds_links_on_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    declare_only(monkeypatch, ElicitationCapability(form=FormElicitationCapability()))
    visitor = Visitor(form={"value": 7})
    async with (
        hosted(with_pages().streamable_http_app()) as url,
        client_of(url, elicitation_callback=visitor) as client,
    ):
        result = await client.call_tool("pay", {})
        browser = Browser(url, "ann")
        link = link_in(result)
        assert await browser.answer_all(link, {"Pay at your bank": "", "Which tip?": "2"}) == "Done"
        result = await resume(client, result)
        assert text_of(result) == "paid by 7, tip 2"
    assert [asked.message for asked in visitor.forms] == ["Which card?"]


async def test_client_that_accepts_at_once_gets_a_handle_at_last() -> None:
    server = with_pages(wait=0.05)
    async with (
        hosted(server.streamable_http_app()) as url,
        client_of(url, elicitation_callback=Visitor(form={"value": 2})) as client,
    ):
        waits = await client.call_tool("many", {"number": 9})
        assert await Browser(url, "ann").answer_all(link_in(waits), {"Number": "2"}) == "Done"
        assert text_of(await resume(client, waits)) == "18"


async def test_asking_tools_are_listed_without_output_schema_where_links_are_given() -> None:
    for server, is_listed in ((with_pages(), False), (with_pages(authenticate=None), True)):
        async with hosted(server.streamable_http_app()) as url, client_of(url) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert (tools["book"].output_schema is not None) is is_listed
        annotations = tools["continue_call"].annotations
        assert tools["continue_call"].output_schema is None
        assert annotations is not None
        assert annotations.destructive_hint is True


async def test_trace_tells_how_each_round_was_asked(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "calls.jsonl")
    server = cinema(pages=Pages(base_url=BASE, authenticate=reader, wait=20), trace=recorder)
    async with hosted(server.streamable_http_app()) as url:
        browser = Browser(url, "ann")
        async with client_of(url) as client:
            asked = await client.call_tool("many", {"number": 2})
            await browser.answer_all(link_in(asked), {"Number": "5"})
        visitor = Visitor(visit=lambda page: browser.answer_all(page.url, {"Number": "2"}), form={"value": 2})
        async with client_of(url, elicitation_callback=visitor) as client:
            await client.call_tool("many", {"number": 8})
    recorder.flush()
    linked, late = await anyio.to_thread.run_sync(calls_of, tmp_path / "calls.jsonl")
    assert [round_.asked.rung for round_ in linked.rounds] == ["link", "page"]
    assert [round_.asked.rung for round_ in late.rounds] == [*[None] * 6, "url", "page"]
    # A token lives for ten minutes, and a stored call for an hour.
    assert [_minutes_of(round_) for round_ in linked.rounds] == [60, 60]
    assert [_minutes_of(round_) for round_ in late.rounds] == [*[10] * 6, 60, 60]
    first, second = [explanation.text for explanation in explain(linked)]
    assert first.startswith("Question 'q0' was asked by a link in the result in round 1, ")
    assert second.startswith("Question 'q1' was asked on its page in round 2, ")


def _minutes_of(round_: Round) -> int:
    """Return the minutes from a round's questions to the deadline for their answers."""
    assert round_.asked.until is not None
    return round((round_.asked.until - round_.asked.at) / 60)


@pytest.mark.parametrize(("mode", "has_approvals"), [("2026-07-28", True), ("legacy", False)])
async def test_client_of_forms_is_asked_by_form_though_another_client_has_left_an_equal_call(
    mode: str, has_approvals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"approvals": Approvals(groups={"fred": ["finance"]})} if has_approvals else {}
    server = cinema(pages=Pages(base_url=BASE, authenticate=reader, wait=0.1), **options)
    async with hosted(server.streamable_http_app()) as url:
        async with client_of(url, mode=mode) as client:
            link_in(await client.call_tool("many", {"number": 1}))
        declare_only(monkeypatch, ElicitationCapability(form=FormElicitationCapability()))
        async with client_of(url, mode=mode, elicitation_callback=Visitor(form={"value": 7})) as client:
            assert text_of(await client.call_tool("many", {"number": 1})) == "7"


# Visibility gates of tools whose calls wait: each leg that goes on with a call is one that its client may see.


class Gate:
    """Gate that a test opens and closes, and the work behind it."""

    def __init__(self) -> None:
        self.is_open = True
        self.users: list[str | None] = []
        self.ran: list[str] = []

    def __call__(self, ctx: Context) -> bool:
        headers: Any = ctx.headers
        self.users.append(headers.get("x-user"))
        return self.is_open

    def install(self, server: Server[Any], **options: Any) -> None:
        @server.tool(enabled=self, **options)
        async def wipe(what: str, ctx: Context) -> str:
            """Wipe something."""
            await ctx.step("note", lambda: self.ran.append("noted"))
            why = await ctx.ask("why", "Why?", str)
            self.ran.append(what)
            return f"wiped {what} as {why}"


async def answer(url: str, link: str, text: str) -> None:
    browser = Browser(url, "ann")
    page = await browser.open_with(link, "<form")
    assert (await browser.send(link, page, text)).status_code == 303


@modes
async def test_closed_gate_hides_a_waiting_call(mode: str) -> None:
    gate, server = Gate(), with_pages(wait=1)
    gate.install(server)
    async with hosted(server.streamable_http_app()) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("wipe", {"what": "all"})
        gate.is_open = False
        await answer(url, link_in(asked), "it is old")
        unknown = [
            await resume(client, asked),
            await client.call_tool("wipe", {"what": "all"}),
            await client.call_tool("wipe", {"what": "other"}),
        ]
        assert [text_of(result) for result in unknown] == ["Unknown tool: wipe"] * 3
        assert all(result.is_error for result in unknown)
        assert gate.ran == ["noted"]
        gate.is_open = True
        result = await resume(client, asked)
        assert text_of(result) == "wiped all as it is old"
        assert gate.ran == ["noted", "all"]
    # No leg without a request of the client has evaluated it.
    assert set(gate.users) == {"ann"}


async def test_decision_does_not_run_a_call_behind_a_closed_gate() -> None:
    gate, server = Gate(), approving_shop(wait=2)

    @server.tool(name="wipe", enabled=gate, confirm=Approve("Wipe?", by="finance"))
    async def wipe() -> str:
        gate.ran.append("wiped")
        return "wiped"

    async with open_shop(server) as url, client_of(url) as client:
        asked = await client.call_tool("wipe", {})
        gate.is_open = False
        await Person(url, "fay").decide("approve", start="Wipe")
        unknown = await resume(client, asked)
        assert text_of(unknown) == "Unknown tool: wipe"
        assert gate.ran == []
        gate.is_open = True
        assert text_of(await resume(client, asked)) == "wiped"
