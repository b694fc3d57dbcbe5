"""The site of a stdio server: its neighbors, everything hostile, and its place among the channels."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitationCapability, UrlElicitationCapability

from roundtrip import Context, Pages, Recorder, Server
from roundtrip.ledger import SqliteLedger
from roundtrip.trace.explaining.explanations import explain
from tests.interaction.pages.local.cinema import cinema
from tests.interaction.pages.local.desktop import ONE, Desktop, answering, on_desk, tab
from tests.interaction.pages.ways import modes
from tests.interaction.trace.transcribed import calls_of
from tests.kit.hosts import WAIT, hosted
from tests.kit.html_forms import read_page
from tests.kit.page_users import BASE, client_of, declare_only, handle_in, link_in, reader, text_of, user_of
from tests.kit.visitors import Visitor

pytestmark = pytest.mark.anyio


# One use, one browser.


async def test_second_use_of_the_address_closes_the_page(caplog: pytest.LogCaptureFixture) -> None:
    desktop = Desktop()
    async with on_desk(desktop) as client, tab() as first, tab() as second:
        asked = await client.call_tool("many", ONE)
        address = await desktop.address()
        assert (await first.open(address)).heading == "Number 0?"
        assert (await second.open(address)).status == 404
        assert "only once" in second.html
        # The program that was first may not be the user's browser.
        assert (await first.open(first.url)).status == 404
        assert "two programs opened the page" in caplog.text
        # The page opens again, and with it only one of them.
        again = await client.call_tool("continue_call", {"handle": handle_in(asked)})
        assert handle_in(again) == handle_in(asked)
        assert (await second.open(await desktop.address(1))).heading == "Number 0?"
        assert (await second.send("4")).heading == "Done"
        end = await client.call_tool("continue_call", {"handle": handle_in(asked)})
    assert text_of(end) == "4"


async def test_page_opens_only_with_the_cookie_of_its_browser() -> None:
    desktop = Desktop()
    async with on_desk(desktop) as client, tab() as one, tab() as other:
        await client.call_tool("many", ONE)
        await client.call_tool("many", {"number": 2})
        address = await desktop.address()
        for method in ("HEAD", "OPTIONS", "POST"):
            # These do not use the address up.
            assert (await one.http.request(method, address)).status_code in (404, 405)
        entered = await one.http.get(address)
        assert entered.status_code == 303
        await one.open(entered.headers["location"])
        foreign = await other.open(one.url)
        assert foreign.status == 404
        unknown = await other.http.get(f"{one.url[:-1]}{'x' if one.url[-1] != 'x' else 'y'}")
        assert foreign.html == unknown.text
        # The cookie of another page of the same browser is no help.
        mine = one.url
        await one.open(await desktop.address(1))
        attributes = entered.headers["set-cookie"].lower()
        assert [part for part in ("httponly", "samesite=strict") if part not in attributes] == []
        assert entered.headers["referrer-policy"] == "no-referrer"
        assert entered.headers["cache-control"] == "no-store"
        (cookie,) = [each for each in one.http.cookies.jar if each.path == httpx.URL(one.url).path]
        assert not cookie.secure
        assert cookie.value is not None
        stolen = await other.http.get(mine, headers={"cookie": f"roundtrip_page={cookie.value}"})
        assert stolen.status_code == 404
        # Nor is any answer without it.
        await one.open(mine)
        form = read_page(one.html).body()
        headers = {"content-type": "application/x-www-form-urlencoded"}
        posted = await other.http.post(mine, content=form, headers=headers)
        assert posted.status_code == 404
        assert "Number" not in posted.text
        assert (await one.open(mine)).heading == "Number 0?"


# Other sites and programs.


async def test_request_for_another_host_or_path_is_rejected() -> None:
    desktop = Desktop()
    async with on_desk(desktop) as client, tab() as one:
        await client.call_tool("many", ONE)
        address = await desktop.address()
        port = httpx.URL(address).port
        hosts = [f"localhost:{port}", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", f"[::1]:{port}"]
        assert [host for host in hosts if (await one.open(address, host=host)).status != 421] == []
        # It was not used.
        assert (await one.open(address)).heading == "Number 0?"
        mine = one.url
        assert [host for host in hosts if (await one.open(mine, host=host)).status != 421] == []
        assert (await one.open(f"http://127.0.0.1:{port}{httpx.URL(address).path}x")).status == 404
        found: list[tuple[str, int]] = []
        for path in ("/", "/ask", "/ask/", "/open/", "/ask/../open", "/mcp", "/ask/%2e%2e/x", "/open/a/b"):
            for method in ("GET", "POST"):
                response = await one.http.request(method, f"http://127.0.0.1:{port}{path}")
                assert "Number" not in response.text
                found.append((path, response.status_code))
    assert [(path, status) for path, status in found if status not in (404, 405)] == []


async def test_form_of_another_site_is_rejected() -> None:
    desktop = Desktop()
    async with on_desk(desktop) as client, tab() as one:
        asked = await client.call_tool("many", ONE)
        await one.open(await desktop.address())
        port, mine = httpx.URL(one.url).port, one.url
        foreign = [
            {"origin": "https://evil.example"},
            {"origin": f"http://localhost:{port}"},
            {"origin": "http://127.0.0.1:1"},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
        ]
        for headers in foreign:
            await one.open(mine)
            assert (headers, (await one.send("4", **headers)).status) == (headers, 403)
        await one.open(mine)
        assert (await one.send("5", origin=f"http://127.0.0.1:{port}")).heading == "Done"
        end = await client.call_tool("continue_call", {"handle": handle_in(asked)})
    assert text_of(end) == "5"


async def test_broken_requests_end_their_connection_alone() -> None:
    desktop = Desktop()
    async with on_desk(desktop) as client, tab() as one:
        await client.call_tool("many", ONE)
        address = await desktop.address()
        port = httpx.URL(address).port or 0
        for garbage in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET /ask HTTP/1.1\r\nHost: ",
        ):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(garbage)
                await stream.send_eof()
                with anyio.fail_after(WAIT):
                    async for chunk in stream:
                        assert b"Number" not in chunk
        assert (await one.open(address)).heading == "Number 0?"


# Beside HTTP.


async def test_each_site_opens_its_own_calls_alone() -> None:
    desktop = Desktop()
    server: Server[Any] = cinema(
        settings={"local": desktop.open, "wait": 0, "base_url": BASE, "authenticate": reader},
        principal=user_of,
        keys=["7f" * 32],
    )
    async with (
        hosted(server.streamable_http_app()) as url,
        client_of(url, "ann") as ann,
        Client(cast("Any", server), mode="2026-07-28") as desk,
        tab() as one,
    ):
        linked, local = await ann.call_tool("many", ONE), await desk.call_tool("many", ONE)
        assert handle_in(linked) != handle_in(local)
        link = link_in(linked)
        assert "http" not in text_of(local)
        await one.open(await desktop.address())
        assert one.heading == "Number 0?"
        local_path, link_path = httpx.URL(one.url).path, httpx.URL(link).path
        # The page of the desk is no page of the HTTP site, whoever asks,
        async with httpx.AsyncClient(cookies={"user": "ann"}, timeout=WAIT) as http:
            assert (await http.get(f"{url}{link_path}")).status_code == 200
            assert (await http.get(f"{url}{local_path}")).status_code == 404
        # and the other way around.
        stranger = await one.http.get(f"http://127.0.0.1:{httpx.URL(one.url).port}{link_path}")
        assert stranger.status_code == 404
        # Nor do handles cross over.
        async with client_of(url, None) as nobody:
            crossed = await nobody.call_tool("continue_call", {"handle": handle_in(local)})
        assert crossed.is_error
        assert (await desk.call_tool("continue_call", {"handle": handle_in(linked)})).is_error


async def test_pages_need_one_of_both_sites() -> None:
    with pytest.raises(ValueError, match=r"base_url=, or local=True"):
        Pages()


# Calls that end otherwise.


@modes
async def test_cancelled_request_closes_its_page(mode: str) -> None:
    desktop = Desktop()
    async with on_desk(desktop, mode, settings={"wait": WAIT}) as client, tab() as one:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "many", {"number": 2})
            await one.open(await desktop.address())
            assert one.heading == "Number 0?"
            group.cancel_scope.cancel()
        with anyio.fail_after(WAIT):
            while "<form" in one.html:
                await one.open(one.url)
        assert one.heading != "Number 0?"
        # The same call begins again, with a page of its own.
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "many", {"number": 2})
            assert (await one.open(await desktop.address(1))).heading == "Number 0?"
            group.cancel_scope.cancel()


async def test_restarted_server_opens_pages_of_continued_calls_alone(tmp_path: Path) -> None:
    options: dict[str, Any] = {"ledger": SqliteLedger(tmp_path / "calls.db"), "keys": ["7f" * 32]}
    before, after = Desktop(), Desktop()
    async with tab() as one:
        async with on_desk(before, **options) as client:
            asked = await client.call_tool("many", ONE)
            await one.open(await before.address())
            path = httpx.URL(one.url).path
        options["ledger"] = SqliteLedger(tmp_path / "calls.db")
        async with on_desk(after, **options) as client:
            # Another process does not know the calls of its predecessor by their arguments.
            other = await client.call_tool("many", ONE)
            assert handle_in(other) != handle_in(asked)
            port = httpx.URL(await after.address()).port
            assert (await one.open(f"http://127.0.0.1:{port}{path}")).status == 404
            await client.call_tool("continue_call", {"handle": handle_in(asked)})
            assert (await one.open(await after.address(1))).heading == "Number 0?"
            assert httpx.URL(one.url).path == path
            assert (await one.send("9")).heading == "Done"
            assert text_of(await client.call_tool("continue_call", {"handle": handle_in(asked)})) == "9"
            assert len(after.addresses) == 2


# The function that opens addresses.


def _raises(address: str) -> None:
    raise OSError(f"cannot open {address}")


async def _refuses(address: str) -> bool:
    return False


@pytest.mark.parametrize("opener", [_raises, _refuses])
async def test_failing_opener_ends_the_call(opener: Callable[[str], object], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "roundtrip")
    server: Any = cinema(settings={"local": opener, "wait": WAIT})
    async with Client(server, mode="2026-07-28") as client:
        with anyio.fail_after(WAIT):
            failed = await client.call_tool("many", ONE)
    assert failed.is_error
    assert "could not be opened" in text_of(failed)
    assert "could not be opened" in caplog.text
    assert "/open/" not in caplog.text


async def test_no_log_trace_or_result_has_an_address(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    desktop, results = Desktop(), list[Any]()
    recorder = Recorder(tmp_path / "calls.jsonl", reveal="all")
    async with on_desk(desktop, trace=recorder, keys=["7f" * 32]) as client, tab() as one:
        asked = await client.call_tool("many", {"number": 2})
        await one.open(await desktop.address())
        # A model that repeats itself opens no window after window.
        repeated = await client.call_tool("many", {"number": 2})
        assert (handle_in(repeated), len(desktop.addresses)) == (handle_in(asked), 1)
        await one.open(await desktop.address())
        again = await client.call_tool("continue_call", {"handle": handle_in(asked)})
        await one.open(await desktop.address(1))
        await one.send("4")
        await one.send("5")
        end = await client.call_tool("continue_call", {"handle": handle_in(asked)})
        results += [asked, repeated, again, end, await client.list_tools()]
    recorder.flush()
    (call,) = await anyio.to_thread.run_sync(calls_of, tmp_path / "calls.jsonl")
    assert [round_.asked.rung for round_ in call.rounds] == ["local", "page"]
    first, *_ = [explanation.text for explanation in explain(call)]
    assert first.startswith("Question 'q0' was asked on a page in the browser on the server's machine in round 1, ")
    logs = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    said = "\n".join([*(record.getMessage() for record in logs), *map(str, results)])
    said += await anyio.Path(tmp_path / "calls.jsonl").read_text()
    assert "Number 0?" in said
    secrets = [address.rpartition("/")[2] for address in [*desktop.addresses, one.url]]
    secrets += [secrets.pop().rpartition(".")[2]]
    for secret in [*secrets, "/ask/", "/open/", f"127.0.0.1:{httpx.URL(one.url).port}"]:
        assert secret not in said, secret


# The page as a channel.


def user_anywhere(ctx: Any) -> str | None:
    """Return the user of a request: by a header over HTTP, by its metadata on stdio."""
    if ctx.request is not None:
        return ctx.request.headers.get("x-user")
    meta: dict[str, Any] = ctx.meta or {}
    return meta.get("user")


def shop(desktop: Desktop, channels: Any = None, **settings: Any) -> Any:
    given: dict[str, Any] = {"local": desktop.open, "wait": WAIT, **settings}
    server = Server[Any]("shop", keys=["7f" * 32], principal=user_anywhere, pages=Pages(**given), channels=channels)

    @server.tool()
    async def anyone(ctx: Context) -> str:
        """Ask anyone."""
        return str(await ctx.ask("size", "How many?", int, answered_by="anyone"))

    @server.tool()
    async def human(ctx: Context) -> str:
        """Ask a human."""
        return str(await ctx.ask("size", "How many?", int))

    return cast("Any", server)


async def test_question_for_anyone_opens_the_page_before_it_asks_a_model() -> None:
    desktop = Desktop()
    server = shop(desktop, ["form", "local", "model"])
    async with Client(server, mode="2026-07-28") as client, answering(desktop, "3"):
        with anyio.fail_after(WAIT):
            assert text_of(await client.call_tool("anyone", {})) == "3"
    assert len(desktop.addresses) == 1
    # A client over HTTP has no such page, and its model is asked.
    async with hosted(server.streamable_http_app()) as url, client_of(url, None, mode="2026-07-28") as client:
        asked = await client.call_tool("anyone", {})
        answers = {"handle": handle_in(asked), "answers": {"size": 4}}
        assert text_of(await client.call_tool("continue_call", answers)) == "4"
    assert len(desktop.addresses) == 1


async def test_model_is_asked_if_no_browser_can_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUNDTRIP_LOCAL_PAGES", "0")
    desktop = Desktop()
    async with Client(shop(desktop, ["form", "local", "model"]), mode="2026-07-28") as client:
        asked = await client.call_tool("anyone", {})
        answers = {"handle": handle_in(asked), "answers": {"size": 4}}
        assert text_of(await client.call_tool("continue_call", answers)) == "4"
        # A model is never asked in the place of a human.
        with pytest.raises(MCPError, match="ROUNDTRIP_LOCAL_PAGES is off") as caught:
            await client.call_tool("human", {})
    assert caught.value.error.code == -32021
    assert desktop.addresses == []


async def test_client_that_shows_links_gets_none_on_stdio(monkeypatch: pytest.MonkeyPatch) -> None:
    declare_only(monkeypatch, ElicitationCapability(url=UrlElicitationCapability()))
    desktop, visitor = Desktop(), Visitor()
    server = shop(desktop, base_url=BASE, authenticate=reader)
    async with Client(server, mode="2026-07-28", elicitation_callback=visitor) as client, answering(desktop, "3"):
        with anyio.fail_after(WAIT):
            assert text_of(await client.call_tool("human", {}, meta={"user": "ann"})) == "3"
    assert visitor.pages == []


async def test_equal_calls_of_two_users_have_a_page_each() -> None:
    desktop = Desktop()
    async with Client(shop(desktop, wait=0), mode="2026-07-28") as client:
        ann = await client.call_tool("human", {}, meta={"user": "ann"})
        ben = await client.call_tool("human", {}, meta={"user": "ben"})
        assert handle_in(ann) != handle_in(ben)
        for_ann = {"handle": handle_in(ann)}
        assert (await client.call_tool("continue_call", for_ann, meta={"user": "ben"})).is_error
        assert handle_in(await client.call_tool("continue_call", for_ann, meta={"user": "ann"})) == handle_in(ann)
        await desktop.address(1)
