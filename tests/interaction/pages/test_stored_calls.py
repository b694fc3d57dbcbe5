"""Calls that wait behind pages: equal calls, unknown users, stores that are down or shared, and bodies that died."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitationCapability, ElicitResult, UrlElicitationCapability

from roundtrip import Approvals, Approve, Context, ElicitUrl, Pages, Recorder, Server, State
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.ledger.contract import Ledger, LedgerDown
from roundtrip.ledger.machines import StoredEvent
from roundtrip.ledger.tasks import CallEntry, change_task
from roundtrip.stored.content import CallNotChanged
from roundtrip.stored.operations import CallOperations
from roundtrip.trace.explaining.explanations import ExplainedSubject, explain
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import files_of, read_files
from tests.interaction.pages.paged import paged
from tests.interaction.pages.ways import kinds, modes
from tests.kit.approving import BASE, KEY, Person, reader, user_of
from tests.kit.hosts import hosted
from tests.kit.page_users import (
    Browser,
    client_of,
    declare_only,
    handle_in,
    link_in,
    resume,
    text_of,
)
from tests.kit.peer import Peer
from tests.kit.stores import Servers, ledger_of
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


def nobody(ctx: Any) -> str:
    return ""


async def down(*_: Any, **__: Any) -> Any:
    raise LedgerDown("the store is down")


def bank(**options: Any) -> Server[Any]:
    server = paged("bank", **options)

    @server.tool(exactly_once=True)
    async def pay(amount: int, ctx: Context) -> str:
        """Pay an amount."""
        return f"paid {amount} to {await ctx.ask('to', 'To whom?', str)}"

    del pay
    return server


async def test_lost_call_says_that_its_outcome_is_unknown() -> None:
    ledger = MemoryLedger()
    async with hosted(bank(ledger=ledger).streamable_http_app()) as url, client_of(url) as client:
        asked = await client.call_tool("pay", {"amount": 5})
        link, handle = link_in(asked), handle_in(asked)

        def lose(entry: CallEntry, now: float) -> bool:
            entry.apply(StoredEvent.WAKE, now)
            entry.claim("dead", now, lease=1)
            entry.has_begun = True
            return entry.apply(StoredEvent.LOSE, now)

        assert await change_task(ledger.tasks, handle.split(".")[0], lose)
        result = await client.call_tool("continue_call", {"handle": handle})
        assert result.is_error
        assert "the outcome is unknown. Check what was done before you start the call again." in text_of(result)
        page = (await Browser(url, "ann").open(link)).text
    assert "We do not know whether the action was completed" in page


@modes
async def test_page_is_unavailable_while_the_store_is_down(
    mode: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = MemoryLedger()
    async with hosted(bank(ledger=ledger).streamable_http_app()) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("pay", {"amount": 5})
        link, browser = link_in(asked), Browser(url, "ann")
        page = (await browser.open(link)).text
        for method in ("load", "save"):
            with monkeypatch.context() as patch:
                patch.setattr(type(ledger.tasks), method, down)
                away = [await browser.send(link, page, "Bob")]
                if method == "load":
                    away.append(await browser.open(link))
            for response in away:
                assert (response.status_code, response.headers["retry-after"]) == (503, "5")
                assert "This page is temporarily unavailable" in response.text
            # What was sent can be sent again; a page that was only looked at looks again by itself.
            refreshes = ['http-equiv="refresh" content="5"' in response.text for response in away]
            assert refreshes == [False, True][: len(away)]
            assert 'value="Bob"' in away[0].text
        assert await browser.answer_all(link, {"To whom?": "Bob"}) == "Done"
        result = await resume(client, asked)
        assert text_of(result) == "paid 5 to Bob"
    assert "a page cannot be shown: the store is down" in caplog.messages
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_call_that_cannot_be_stored_has_ended_in_its_transcript(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ledger, path = MemoryLedger(), tmp_path / "calls.jsonl"
    app = bank(ledger=ledger, trace=Recorder(path)).streamable_http_app()
    async with hosted(app) as url, client_of(url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(type(ledger.tasks), "add", down)
            with pytest.raises(MCPError, match="Calls cannot be stored now"):
                await client.call_tool("pay", {"amount": 5})
        asked = await client.call_tool("pay", {"amount": 6})
        await Browser(url, "ann").answer_all(link_in(asked), {"To whom?": "Bob"})
        assert text_of(await resume(client, asked)) == "paid 6 to Bob"
    calls = join(read_files(files_of([path])).lines).calls
    unstored, paid = sorted(calls.values(), key=lambda call: call.stopped is None)
    assert (unstored.stopped is not None and unstored.stopped.how, unstored.is_over) == ("unstored", True)
    assert (paid.stopped, paid.state) == (None, State.COMPLETED)
    (failure,) = [one for one in explain(unstored) if one.subject is ExplainedSubject.FAILURE]
    assert "its questions could not be stored" in failure.text


async def test_call_that_is_asked_by_form_needs_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = MemoryLedger()

    async def answer(context: Any, params: Any) -> ElicitResult:
        monkeypatch.setattr(type(ledger.tasks), "load", down)
        return ElicitResult(action="accept", content={"value": "Ada"})

    server = bank(ledger=ledger)

    @server.tool()
    async def greet(ctx: Context) -> str:
        return f"dear {await ctx.ask('whom', 'Whom?', str)}"

    del greet
    async with hosted(server.streamable_http_app()) as url, client_of(url, elicitation_callback=answer) as client:
        assert text_of(await client.call_tool("greet", {})) == "dear Ada"


@pytest.mark.parametrize(("action", "method"), [("accept", "load"), ("decline", "save"), ("cancel", "save")])
async def test_call_that_is_stored_cannot_go_on_without_its_store(
    monkeypatch: pytest.MonkeyPatch, action: Any, method: str
) -> None:
    ledger = MemoryLedger()

    async def visit(context: Any, params: Any) -> ElicitResult:
        monkeypatch.setattr(type(ledger.tasks), method, down)
        return ElicitResult(action=action)

    declare_only(monkeypatch, ElicitationCapability(url=UrlElicitationCapability()))
    app = bank(ledger=ledger).streamable_http_app()
    async with hosted(app) as url, client_of(url, elicitation_callback=visit) as client:
        with pytest.raises(MCPError, match="Calls cannot be reached now") as refused:
            await client.call_tool("pay", {"amount": 5})
    assert (refused.value.error.code, refused.value.error.data) == (-32000, {"reason": "ledger_unavailable"})


@pytest.mark.parametrize("elicitation", [{}, {"form": {}}])
async def test_task_ends_with_a_link_for_a_client_that_cannot_ask(elicitation: dict[str, Any]) -> None:
    server = paged("bank")

    @server.tool(task=True)
    async def pay(ctx: Context) -> str:
        card = await ctx.ask("card", "Which card?", str)
        await ctx.ask("bank", ElicitUrl("Pay at your bank", "https://bank.example/pay"))
        return f"paid by {card}"

    async with hosted(server.streamable_http_app()) as url, httpx.AsyncClient(timeout=WAIT) as http:
        peer = Peer(http, f"{url}/mcp", headers={"x-user": "ann"}, elicitation=elicitation)
        task = (await peer.call("pay"))["taskId"]
        if elicitation:
            await peer.asked(task, "card")
            await peer.answer(task, card="Visa")
        asked = CallToolResult.model_validate((await peer.until(task))["result"])
        # It has ended for its client, which neither answers for its user nor cancels the call.
        await peer.answer(task, card="forged")
        await peer.ask("tasks/cancel", taskId=task)
        browser, link = Browser(url, "ann"), link_in(asked)
        if not elicitation:
            await browser.send(link, await browser.open_with(link, "card"), "Visa")
        await browser.send(link, await browser.open_with(link, "bank"))
        ended = CallToolResult.model_validate(await peer.call("continue_call", handle=handle_in(asked)))
        assert text_of(ended) == "paid by Visa"
        assert CallToolResult.model_validate((await peer.get(task))["result"]) == asked


async def test_equal_call_of_another_version_begins_its_own() -> None:
    server = bank()
    for version in ("1", "2"):

        async def rate(ctx: Context, version: str = version) -> str:
            return await ctx.ask("answer", f"Version {version}?", str)

        server.add_tool(rate, version=version)
    async with hosted(server.streamable_http_app()) as url, client_of(url) as client:
        handles = [
            handle_in(await client.call_tool("rate", {"version": "any"}, meta={"roundtrip/version": version}))
            for version in ("1", "2", "1")
        ]
    assert handles[0] == handles[2] != handles[1]


@pytest.mark.parametrize("shows_links", [False, True])
async def test_unknown_user_is_given_no_page(shows_links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if shows_links:
        declare_only(monkeypatch, ElicitationCapability(url=UrlElicitationCapability()))
    errors: list[MCPError] = []
    for server, user in ((bank(), None), (bank(principal=nobody), "ann")):
        async with hosted(server.streamable_http_app()) as url, client_of(url, user) as client:
            with pytest.raises(MCPError) as failed:
                await client.call_tool("pay", {"amount": 5})
        errors.append(failed.value)
    assert [error.code for error in errors] == [-32021, -32021]
    assert shows_links or "because the server does not know the user of this call" in str(errors[0])


@kinds
async def test_strange_handle_is_unknown(kind: str, started: Servers, tmp_path: Path) -> None:
    ledger = ledger_of(kind, started, tmp_path)
    async with hosted(bank(ledger=ledger).streamable_http_app()) as url, client_of(url) as client:
        for handle in ("a\0b.secret", "", ".", "a" * 100_000):
            result = await client.call_tool("continue_call", {"handle": handle})
            assert text_of(result) == "There is no such call, or it has expired. Start the call again."
    await ledger.aclose()


async def test_access_log_has_no_address_of_a_page(caplog: pytest.LogCaptureFixture) -> None:
    async with hosted(bank().streamable_http_app()) as url, client_of(url) as client:
        link = link_in(await client.call_tool("pay", {"amount": 5}))
    path = link.removeprefix(BASE)
    with caplog.at_level(logging.INFO, "uvicorn.access"):
        logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', "127.0.0.1:1", "GET", path, "1.1", 200)
    assert '"GET /ask/<ticket> HTTP/1.1"' in caplog.text
    assert path.removeprefix("/ask/") not in caplog.text


# Servers of two services that share a ledger and keys: neither reads, lists, decides nor runs the other's calls.


@asynccontextmanager
async def serving(server: Server[Any]) -> AsyncGenerator[tuple[str, Client]]:
    """Serve a service, and yield its address and a client."""
    async with hosted(server.streamable_http_app()) as url, client_of(url) as client:
        yield url, client


def service(name: str, ledger: Ledger, ran: list[str], **options: Any) -> Server[Any]:
    server = Server[Any](
        name,
        keys=[KEY],
        principal=user_of,
        pages=Pages(base_url=BASE, authenticate=reader, wait=20),
        approvals=Approvals(groups={"fay": ["finance"]}),
        ledger=ledger,
        **options,
    )

    @server.tool(confirm=Approve("Refund {amount}?", by="finance"))
    async def refund(amount: int) -> str:
        ran.append(name)
        return f"{name} refunded {amount}"

    @server.tool(confirm="Pay {amount}?")
    async def pay(amount: int) -> str:
        ran.append(name)
        return f"{name} paid {amount}"

    return server


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_services_do_not_share_calls(kind: str, tmp_path: Path) -> None:
    def ledgers() -> Ledger:
        return SqliteLedger(tmp_path / "one.db")

    shared = MemoryLedger()
    ran: list[str] = []
    # The shop leaves its calls to workers, and the first one that looks is the other service's.
    shop = service("shop", shared if kind == "memory" else ledgers(), ran, run_tasks=False)
    wiki = service("wiki", shared if kind == "memory" else ledgers(), ran)
    async with serving(shop) as (at_shop, of_shop), serving(wiki) as (at_wiki, of_wiki):
        refund = await of_shop.call_tool("refund", {"amount": 5})
        pay = await of_shop.call_tool("pay", {"amount": 1})
        approval = await Person(at_shop, "fay").one()
        assert await Person(at_wiki, "fay").inbox() == []
        sent = await Person(at_wiki, "fay").api(f"/{approval}", json={"decision": "approve"})
        assert sent.status_code == 404
        unknown = await of_wiki.call_tool("continue_call", {"handle": handle_in(pay)})
        assert "no such call" in text_of(unknown)
        assert (await Browser(at_wiki, "ann").open(link_in(pay))).status_code == 404
        # An equal call of the other service is another call.
        own = await of_wiki.call_tool("pay", {"amount": 1})
        assert handle_in(own) != handle_in(pay)
        assert wiki.internals.storage.tasks is not None
        operations, foreign = CallOperations(wiki.internals.storage.tasks.book), handle_in(pay).partition(".")[0]
        for change in (operations.cancel(foreign), operations.retry(foreign, even_once=True)):
            with pytest.raises(CallNotChanged, match="belongs to another service"):
                await change

        page = (await Browser(at_shop, "ann").open(link_in(pay))).text
        assert (await Browser(at_shop, "ann").send(link_in(pay), page)).status_code == 303
        await Person(at_shop, "fay").decide("approve")
        # Due for longer than the other service's own call, which its worker finds behind them.
        page = (await Browser(at_wiki, "ann").open(link_in(own))).text
        assert (await Browser(at_wiki, "ann").send(link_in(own), page)).status_code == 303
        assert text_of(await of_wiki.call_tool("continue_call", {"handle": handle_in(own)})) == "wiki paid 1"
        assert ran == ["wiki"]

        worker = service("shop", shared if kind == "memory" else ledgers(), ran)
        async with serving(worker) as (_, client):
            with anyio.fail_after(WAIT):
                paid = await resume(client, pay)
                refunded = await resume(client, refund)
        assert text_of(paid) == "shop paid 1"
        assert text_of(refunded) == "shop refunded 5"


async def test_audience_names_the_service(tmp_path: Path) -> None:
    ran: list[str] = []
    first, second = [
        service(name, SqliteLedger(tmp_path / "one.db"), ran, audience="shops") for name in ("shop-1", "shop-2")
    ]
    async with serving(first) as (_, client), serving(second) as (other, elsewhere):
        asked = await client.call_tool("refund", {"amount": 5})
        await Person(other, "fay").decide("approve")
        assert "refunded 5" in text_of(await elsewhere.call_tool("continue_call", {"handle": handle_in(asked)}))
