"""Operators act on calls that wait for pages, models and approvals: what clients and people see then."""

import os
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from roundtrip import Approvals, Context, Pages, PendingApproval
from roundtrip.cli import main
from roundtrip.errors import Decision
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.stored.content import CallNotChanged
from roundtrip.system import System
from roundtrip.testing import Clock
from tests.interaction.tasks.operators import logged, operator_of
from tests.kit.approving import GROUPS, Person, open_shop, shop
from tests.kit.hosts import ROOT, hosted
from tests.kit.page_users import BASE, Browser, cinema, client_of, handle_in, link_in, reader, resume, text_of
from tests.kit.peer import Peer
from tests.kit.programs import needs
from tests.kit.stores import Servers, ledger_of
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio
FOLDER = "ACTING_FOLDER"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "operators.jsonl"


def call_in(result: Any) -> str:
    return handle_in(result).partition(".")[0]


def paged_cinema(ledger: Any = None) -> Any:
    pages = Pages(base_url=BASE, authenticate=reader, wait=20)
    return cinema(pages=pages, ledger=ledger or MemoryLedger())


async def test_operator_answers_the_questions_of_a_page(log: Path) -> None:
    server = paged_cinema()
    operator = operator_of(server, log)
    async with hosted(server.streamable_http_app()) as url, client_of(url) as client:
        asked = await client.call_tool("offer", {})
        await operator.answer(call_in(asked), "seats", {"action": "decline"})
        await Browser(url, "ann").open_with(link_in(asked), "Why not?")
        await operator.answer(call_in(asked), "why", {"action": "accept", "content": {"value": "late"}})
        assert text_of(await resume(client, asked)) == "declined, as late"
    assert [(line.action, line.outcome, line.why) for line in logged(log)] == [
        ("answer", "done", "seats"),
        ("answer", "done", "why"),
    ]


@pytest.mark.parametrize(
    ("mode", "action", "said"),
    [
        ("2026-07-28", "cancel", "This call was cancelled, or it has expired."),
        ("legacy", "expire", "This call has ended: an operator"),
    ],
)
async def test_client_learns_that_its_call_was_ended(mode: str, action: Any, said: str, log: Path) -> None:
    server = paged_cinema()
    async with hosted(server.streamable_http_app()) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("offer", {})
        link = link_in(asked)
        await operator_of(server, log).act(call_in(asked), action)
        assert text_of(await resume(client, asked)).startswith(said)
        assert "<form" not in (await Browser(url, "ann").open(link)).text
        # The same call begins from scratch.
        assert call_in(await client.call_tool("offer", {})) != call_in(asked)
    assert [(line.action, line.outcome) for line in logged(log)] == [(action, "done")]


@pytest.mark.parametrize("action", ["cancel", "expire"])
async def test_ended_call_leaves_the_inbox(action: Any, log: Path) -> None:
    told: list[tuple[PendingApproval, Decision]] = []
    server = shop(approvals=Approvals(groups=GROUPS, on_decided=lambda one, made: told.append((one, made))))
    async with open_shop(server) as url, httpx.AsyncClient(timeout=WAIT, headers={"x-user": "ann"}) as http:
        peer = Peer(http, f"{url}/mcp", declares=False, headers={"x-user": "ann"})
        call = {"name": "refund", "arguments": {"amount": 5}}
        asked = await peer.ask("tools/call", **call)
        fay = Person(url, "fay")
        approval = await fay.one()
        page = (await fay.get(f"/approvals/{approval}")).text
        await operator_of(server, log).act(approval.partition(".")[0], action)
        assert await fay.inbox() == []
        assert (await fay.post(approval, "approve", page=page)).status_code in (404, 409)
        # Its token begins it no more.
        accepted = {key: {"action": "accept"} for key in asked["inputRequests"]}
        again = await peer.ask("tools/call", **call, requestState=asked["requestState"], inputResponses=accepted)
        assert again["isError"]
        assert await fay.inbox() == []
    # As time would, the end of a life expires its approvals.
    assert [made.outcome for _, made in told] == (["expired"] if action == "expire" else [])


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=needs("postgres"))])
async def test_reminder_runs_in_the_process_of_the_operator(
    kind: str, started: Servers, tmp_path: Path, log: Path
) -> None:
    at_server, at_operator = list[PendingApproval](), list[PendingApproval]()
    ledger = ledger_of(kind, started, tmp_path)

    async def notify(one: PendingApproval) -> None:
        await anyio.lowlevel.checkpoint()
        at_operator.append(one)

    server = shop(ledger=ledger, approvals=Approvals(groups=GROUPS, on_pending=at_server.append))
    # It is never served: the process of the operator only loads it.
    own = shop(ledger=ledger, approvals=Approvals(groups=GROUPS, on_pending=notify))
    async with open_shop(server) as url, client_of(url) as client:
        asked = await client.call_tool("refund", {"amount": 5})
        await until(lambda: bool(at_server))
        await operator_of(own, log).act(call_in(asked), "remind")
        (reminder,) = at_operator
        assert (reminder.number, reminder.is_reminder, reminder.by, reminder.caller) == (2, True, "finance", "ann")
        await Person(url, "fay").decide("approve")
        assert text_of(await resume(client, asked)) == "refunded 5"
        with pytest.raises(CallNotChanged, match="already ended"):
            await operator_of(own, log).act(call_in(asked), "remind")
    await ledger.aclose()
    assert [line.outcome for line in logged(log)] == ["done", "rejected"]


async def test_next_reminder_counts_from_that_of_the_operator(log: Path) -> None:
    clock, told, ran = Clock(), list[PendingApproval](), list[int]()
    settings = Approvals(groups=GROUPS, on_pending=told.append)
    server = shop(ledger=MemoryLedger(system=System(time=clock)), system=System(time=clock), approvals=settings)

    @server.tool()
    async def close(ctx: Context) -> str:
        ran.append(1)
        return str(await ctx.approve("ok", "Close?", by="finance", remind=600))

    async with open_shop(server, wait=0.1) as url, client_of(url) as client:
        asked = await client.call_tool("close", {})
        clock.advance(1)
        await until(lambda: len(told) == 1)
        began = len(ran)
        clock.advance(500)
        await operator_of(server, log).act(call_in(asked), "remind")
        clock.advance(200)
        # The worker has looked at what was due by then if it has run a call that came later.
        later = await client.call_tool("refund", {"amount": 1})
        clock.advance(1)
        await until(lambda: any(one.tool == "refund" for one in told))
        closing = [one.number for one in told if one.message == "Close?"]
        assert closing == [1, 2]
        assert len(ran) == began
        clock.advance(401)
        await until(lambda: [one.number for one in told if one.message == "Close?"] == [1, 2, 3])
        assert call_in(later) != call_in(asked)


async def test_failed_notification_is_reported(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def fail(one: PendingApproval, *decision: Decision) -> None:
        calls.append(one.number)
        raise ValueError("mail server")

    server = shop(approvals=Approvals(groups=GROUPS, on_pending=fail, on_decided=fail))
    async with open_shop(server) as url, client_of(url) as client:
        asked = await client.call_tool("refund", {"amount": 5})
        await until(lambda: bool(calls))
        with pytest.raises(CallNotChanged, match="on_pending failed for 1 of 1 approvals"):
            await operator_of(server, log).act(call_in(asked), "remind")
        # The failures change nothing.
        await Person(url, "fay").decide("approve")
        assert text_of(await resume(client, asked)) == "refunded 5"
        await until(lambda: caplog.text.count("a function of Approvals(...) failed") >= 2)
    assert calls[:2] == [1, 2]
    assert [line.outcome for line in logged(log)] == ["rejected"]
    assert "mail server" in caplog.text


async def test_reminder_needs_a_function_and_an_approval(log: Path) -> None:
    server = shop()
    async with open_shop(server) as url, client_of(url) as client:
        asked = await client.call_tool("refund", {"amount": 5})
        with pytest.raises(CallNotChanged, match=r"give it approvals=Approvals\(on_pending=...\)"):
            await operator_of(server, log).act(call_in(asked), "remind")
    server = shop(approvals=Approvals(groups=GROUPS, on_pending=lambda one: None))
    async with open_shop(server) as url, client_of(url) as client:
        asked = await client.call_tool("partly", {"order": "Emma"})
        with pytest.raises(CallNotChanged, match="is not waiting for an approval"):
            await operator_of(server, log).act(call_in(asked), "remind")


def stored_shop() -> Any:
    """Return a shop on the ledger of a test, for the command."""
    folder = Path(os.environ[FOLDER])

    async def notify(one: PendingApproval) -> None:
        with (folder / "mails").open("a") as file:
            file.write(f"{one.by} {one.number}\n")

    return shop(ledger=SqliteLedger(folder / "calls.db"), approvals=Approvals(groups=GROUPS, on_pending=notify))


async def test_command_reminds_expires_and_logs(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.chdir(ROOT)
    mails = tmp_path / "mails"
    async with open_shop(stored_shop()) as url, client_of(url) as client:
        asked = await client.call_tool("refund", {"amount": 5})
        await until(mails.exists)

        async def run(*words: str) -> int:
            command = ["calls", *words, "--server", f"{__name__}:stored_shop", "--operator-log", str(log)]
            return await anyio.to_thread.run_sync(main, command)

        assert await run("remind", call_in(asked)) == 0
        assert mails.read_text().splitlines() == ["finance 1", "finance 2"]
        assert await run("expire", call_in(asked), call_in(asked)) == 1
        assert text_of(await resume(client, asked)).startswith("This call has ended: an operator")
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"{call_in(asked)}: groups notified",
        f"{call_in(asked)}: expired",
    ]
    assert [(line.instance, line.action, line.outcome) for line in logged(log)] == [
        ("command", "remind", "done"),
        ("command", "expire", "done"),
        ("command", "expire", "rejected"),
    ]
