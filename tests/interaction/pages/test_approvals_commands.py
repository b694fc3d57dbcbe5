"""The commands that show and decide approvals, and their record in transcripts and the store."""

import json
import re
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from examples import approvals_webhook
from roundtrip import Recorder
from roundtrip.cli import main
from roundtrip.client.failures import ExitCode
from roundtrip.ledger import SqliteLedger
from roundtrip.trace.explaining.explanations import explain
from roundtrip.trace.explaining.wording import clock_text
from tests.docs.pages import blocks
from tests.interaction.tasks.operators import operator_of
from tests.interaction.trace.transcribed import calls_of
from tests.kit.approving import Person, open_shop, shop
from tests.kit.hosts import ROOT, hosted
from tests.kit.page_users import client_of, handle_in, resume, text_of
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio


FILE = "APPROVALS_FILE"


def stored_shop() -> Any:
    """Return a shop on the ledger of a test, for the commands."""
    import os

    return shop(ledger=SqliteLedger(os.environ[FILE]))


async def run(*words: str) -> int:
    """Run a command in a thread: it has an event loop of its own."""
    return await anyio.to_thread.run_sync(main, list(words))


async def test_inbox_lists_shows_and_decides(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUNDTRIP_INBOX_TOKEN", "token-of-fay")
    async with open_shop() as url, client_of(url) as client:
        for options, out in {(): "", ("--json",): "[]\n"}.items():
            assert await run("inbox", "list", url, *options) == 0
            assert capsys.readouterr() == (out, "roundtrip inbox: no approval waits for you\n")
        asked = [await client.call_tool("refund", {"amount": number, "note": "\x1b[2J"}) for number in range(3)]
        assert await run("inbox", "ls", url) == 0
        listed = capsys.readouterr().out
        assert "Refund 0?" in listed
        assert "\x1b" not in listed
        assert await run("inbox", "list", url, "--json") == 0
        first, second, third = [one["id"] for one in json.loads(capsys.readouterr().out)]
        assert await run("inbox", "show", url, first) == 0
        shown = capsys.readouterr().out
        assert "Refund 0?" in shown
        assert "\x1b" not in shown
        assert await run("inbox", "approve", url, first, "--reason", "fine") == 0
        assert await run("inbox", "approve", url, first) == 1
        assert await run("inbox", "reject", url, second, "--reason", "no", "--token", "token-of-fred") == 0
        assert await run("inbox", "reject", url, third, "--reason", "no", "--token", "token-of-ann") == 1
        assert await run("inbox", "list", url, "--token", "wrong") == 2
        assert await run("inbox", "list", f"{url}/nowhere") == 2
        texts = [text_of(await resume(client, one)) for one in asked[:2]]
        assert texts[0] == "refunded 0"
        assert "was rejected" in texts[1]
    output = "".join(capsys.readouterr())
    assert [
        said
        for said in ("does not accept the token: authentication is", "no inbox at this address")
        if said not in output
    ] == []
    assert "token-of" not in output


async def test_start_of_an_id_is_enough_if_it_is_the_only_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUNDTRIP_INBOX_TOKEN", "token-of-fay")
    async with open_shop() as url, client_of(url) as client:
        for number in range(2):
            await client.call_tool("refund", {"amount": number})
        first, second = [one for one, _ in await Person(url, "fay").inbox()]
        assert await run("inbox", "approve", url, first[:8]) == 0
        assert (await Person(url, "fay").api(f"/{first}")).json()["state"] == "approved"
        assert await run("inbox", "approve", url, f"{second}x") == 1
        assert await run("inbox", "approve", url, "") == 2
        starts = [second[0]]
        while len(set(starts)) == len(starts):
            await client.call_tool("refund", {"amount": 10 + len(starts)})
            starts = [one[0] for one, _ in await Person(url, "fay").inbox()]
        (twice,) = {start for start in starts if starts.count(start) > 1}
        capsys.readouterr()
        assert await run("inbox", "approve", url, twice) == 2
    assert f"2 approval ids begin with {twice!r}" in capsys.readouterr().err


MISTAKES = [
    (["list", "https://shop.example"], "a token is required"),
    (["list", "http://shop.example", "--token", "secret-1"], "must begin with https"),
    (["list", "ftp://shop.example", "--token", "secret-1"], "must be an address"),
    (["list", "http://127.0.0.1:9", "--token", "secret-1"], "nothing answers at http://127.0.0.1:9; start the server"),
    (["list", "https://a.example/x/mcp", "--token", "secret-1"], "without /mcp; give https://a.example/x\n"),
    (
        ["list", "https://a.example/approvals/api", "--token", "s-1"],
        "without /approvals/api; give https://a.example\n",
    ),
    (["list", "http://127.0.0.1:9", "--token", "secret 1"], "one word"),
]


def test_inbox_says_why_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    errors: list[str] = []
    for words, _ in MISTAKES:
        assert main(["inbox", *words]) == 2
        errors.append(capsys.readouterr().err)
    assert [reason for error, (_, reason) in zip(errors, MISTAKES, strict=True) if reason not in error] == []
    assert "secret" not in "".join(errors)


@pytest.mark.parametrize(("mode", "reveal"), [("2026-07-28", ()), ("legacy", "all")])
async def test_trace_tells_who_approved_what(
    mode: str, reveal: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.jsonl"
    recorder = Recorder(path, reveal=reveal)
    async with open_shop(shop(trace=recorder)) as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("refund_all", {"order": "Emma"})
        recorder.flush()
        (waiting,) = await anyio.to_thread.run_sync(calls_of, path)
        (text,) = [one.text for one in explain(waiting)]
        assert text.startswith("The call waits for the approval 'large' by 'finance'")
        await Person(url, "fay").decide("approve", "looks-right")
        await resume(client, asked)
    recorder.flush()
    calls = await anyio.to_thread.run_sync(calls_of, path)
    call = next(one for one in calls if one.tool == "refund_all")
    assert call.state.value == "completed"
    assert [len(round_.asked.approvals) for round_ in call.rounds] == [1]
    assert await run("trace", "show", call.id, str(path)) == 0
    shown = capsys.readouterr().out
    assert "waited for the approval 'large' by 'finance'" in shown
    assert "approved" in shown
    for secret in ("fay", "looks-right", "Refund all of"):
        assert (secret in shown) is (reveal == "all")
        assert (secret in path.read_text()) is (reveal == "all")


async def test_calls_show_is_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILE, str(tmp_path / "calls.db"))
    monkeypatch.chdir(ROOT)
    async with open_shop(stored_shop()) as url, client_of(url) as client:
        asked = await client.call_tool("refund_all", {"order": "Emma"})
        approval = await Person(url, "fred").decide("approve", "looks right")
        await resume(client, asked)
        call, target = approval.rpartition(".")[0], f"{__name__}:stored_shop"
        assert await run("calls", "show", call, "--server", target, "--json") == 0
        plain = capsys.readouterr().out
        assert await run("calls", "show", call, "--server", target) == 0
        for_people = capsys.readouterr().out
        assert await run("calls", "show", call, "--server", target, "--json", "--reveal") == 0
        (made,) = json.loads(capsys.readouterr().out)["stored"]["approvals"]
        await client.call_tool("refund_all", {"order": "Pnin"})
        ((waiting, _),) = await Person(url, "fred").inbox()
        assert await run("calls", "cancel", other := waiting.rpartition(".")[0], "--server", target) == 0
        assert await run("calls", "show", other, "--server", target) == 0
        assert " by finance: withdrawn\n" in capsys.readouterr().out
    assert (made["state"], made["who"], made["reason"]) == ("approved", "fred", "looks right")
    assert made["message"] == "Refund all of Emma?"
    assert f" by finance: approved {clock_text(made['decided'])}\n" in for_people
    assert json.loads(plain)["stored"]["approvals"][0]["state"] == "approved"
    assert not any(text in plain for text in ("fred", "looks right", "Emma"))


@pytest.mark.parametrize("era", ["retry", "auto"])
async def test_call_without_a_terminal_says_who_must_approve(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, era: str
) -> None:
    (tmp_path / "answers.json").write_text("{}")
    options = ("--header", "X-User: ann", "--era", era, "--no-tasks", "--answers", str(tmp_path / "answers.json"))
    async with open_shop(wait=0.2) as url:
        assert await run("call", f"{url}/mcp", "refund", "amount=5", *options) == ExitCode.WAITING
        waited = capsys.readouterr()
        assert "waits for an approval by finance" in waited.err
        assert "continue_call" in waited.err
        handle = re.search(r"handle='([^']+)'", waited.out)
        assert handle is not None
        await Person(url, "fay").decide("approve")
        assert await run("call", f"{url}/mcp", "continue_call", f"handle={handle[1]}", *options) == 0
        assert "refunded 5" in capsys.readouterr().out


# The example that tells a chat of approvals, and the tests on the page about them.


async def test_chat_is_told_and_the_page_decides() -> None:
    told: list[str] = []

    async def hear(request: Request) -> Response:
        told.append((await request.json())["text"])
        return Response()

    async with hosted(Starlette(routes=[Route("/hook", hear, methods=["POST"])]), lifespan="off") as chat:
        server = approvals_webhook.shop(f"{chat}/hook", base_url="https://shop.example", remind=3600)
        async with hosted(server.streamable_http_app()) as url, client_of(url) as client:
            asked = await client.call_tool("refund", {"order": "<b>1</b>", "amount": 5})
            await until(lambda: len(told) == 1)
            await operator_of(server).act(handle_in(asked).partition(".")[0], "remind")
            assert told[0].startswith("Refund 5 for &quot;&lt;b&gt;1")
            assert "ada waits for finance: https://shop.example/approvals/" in told[0]
            assert "ada still waits for finance" in told[1]
            approval = told[0].rpartition("/")[2]
            async with httpx.AsyncClient(auth=("ada", "lovelace"), timeout=WAIT) as http:
                assert (await http.get(f"{url}/approvals/{approval}")).status_code == 404
            async with httpx.AsyncClient(auth=("fay", "finance"), timeout=WAIT) as http:
                assert (await http.get(f"{url}/approvals/{approval}")).status_code == 200
                decided = await http.post(f"{url}/approvals/api/{approval}", json={"decision": "approve"})
                assert decided.status_code == 200
            async with httpx.AsyncClient(auth=("fay", "guess"), timeout=WAIT) as http:
                assert (await http.get(f"{url}/approvals")).status_code == 401
            result = await resume(client, asked)
            assert text_of(result) == "5 refunded for <b>1</b>"


async def test_test_of_the_page_passes() -> None:
    page = ROOT / "docs" / "approvals.md"
    names: dict[str, Any] = {"__name__": "approvals_page"}
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.text, str(page), "exec", dont_inherit=True), names)
    await names["test_refund"]()
