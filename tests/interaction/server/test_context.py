"""A tool's context besides questions: messages, progress, resources, and the caller of the request."""

from typing import Any, Final

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.settings import AuthSettings
from mcp_types import LoggingLevel, LoggingMessageNotificationParams
from pydantic import AnyHttpUrl

from roundtrip import Context, Server
from roundtrip.testing import Era, LegByLeg, User, served
from roundtrip.testing.networks.fleet import Instance
from tests.interaction.pages.web import Badges, as_user
from tests.kit.players import call, connect, text_of
from tests.kit.shops import Choice
from tests.kit.transports import serve_over

pytestmark = pytest.mark.anyio


def desk(**options: Any) -> Server[Any]:
    server = Server[Any]("desk", **options)

    @server.tool()
    async def talk(ctx: Context) -> str:
        await ctx.debug("looking")
        await ctx.info("found", logger_name="desk")
        await ctx.warning({"left": [1, None, "two"], "none": None})
        await ctx.error("broken", extra={"shelf": 3})
        await ctx.log("notice", 7)
        await ctx.report_progress(1, 2, "half")
        await ctx.report_progress(2, 2)
        return "talked"

    @server.tool()
    def talk_in_a_thread(ctx: Context) -> str:
        ctx.blocking.debug("looking")
        ctx.blocking.info("found", logger_name="desk")
        ctx.blocking.warning({"left": [1, None, "two"], "none": None})
        ctx.blocking.error("broken", extra={"shelf": 3})
        ctx.blocking.log("notice", 7)
        ctx.blocking.report_progress(1, 2, "half")
        ctx.blocking.report_progress(2, 2)
        return "talked"

    @server.tool()
    async def read(uri: str, ctx: Context) -> str:
        contents = await ctx.read_resource(uri)
        first = contents[0]
        return f"{len(contents)} {first.content!r} {first.mime_type}"

    @server.tool()
    async def whose(ctx: Context) -> dict[str, str | None]:
        return {"client": ctx.client_id, "session": ctx.session_id}

    @server.tool()
    async def talk_and_ask(ctx: Context) -> str:
        await ctx.info("before")
        answer = await ctx.ask("sure", "Sure?", Choice)
        await ctx.info("after")
        return str(answer.ok)

    @server.resource("note://text", mime_type="text/markdown")
    def text() -> str:
        return "# Note"

    @server.resource("note://bytes/{name}", mime_type="application/x-note")
    def data(name: str) -> bytes:
        return name.encode()

    return server


class Log:
    """Messages in a client's log."""

    def __init__(self) -> None:
        self.entries: list[tuple[LoggingLevel, str | None, Any]] = []

    async def __call__(self, params: LoggingMessageNotificationParams) -> None:
        self.entries.append((params.level, params.logger, params.data))


ENTRIES: Final = [
    ("debug", None, "looking"),
    ("info", "desk", "found"),
    ("warning", None, {"left": [1, None, "two"], "none": None}),
    ("error", None, {"msg": "broken", "extra": {"shelf": 3}}),
    ("notice", None, 7),
]


@pytest.mark.parametrize("transport", ["memory", "http", "http stateless"])
async def test_messages_and_progress_reach_a_client_that_wants_them(era: Era, transport: str) -> None:
    log = Log()
    seen: list[tuple[float, float | None, str | None]] = []

    async def watch(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with (
        serve_over(transport, desk()) as target,
        connect(target, era, logging_callback=log, log_level="debug") as client,
    ):
        for tool in ("talk", "talk_in_a_thread"):
            assert text_of(await client.call_tool(tool, {}, progress_callback=watch)) == "talked"
            assert text_of(await client.call_tool(tool, {})) == "talked"
    assert log.entries == ENTRIES * 4
    assert seen == [(1, 2, "half"), (2, 2, None)] * 2


async def test_only_clients_of_2026_choose_their_messages() -> None:
    heard: dict[str, list[str]] = {}
    levels: tuple[LoggingLevel | None, ...] = (None, "warning", "notice", "critical")
    for level in levels:
        log = Log()
        await call(desk(), Era.RETRY, "talk", logging_callback=log, log_level=level)
        heard[level or "none"] = [entry[0] for entry in log.entries]
    older = Log()
    await call(desk(), Era.LIVE, "talk", logging_callback=older)
    assert heard == {
        "none": [],
        "warning": ["warning", "error"],
        "notice": ["warning", "error", "notice"],
        "critical": [],
    }
    assert older.entries == ENTRIES


async def test_every_leg_sends_the_messages_that_it_runs_into() -> None:
    log = Log()
    options: dict[str, Any] = {"logging_callback": log, "log_level": "info"}
    hopper = LegByLeg([desk(keys=[b"k" * 32])], **options)
    await hopper.leg("talk_and_ask")
    await hopper.leg("talk_and_ask", answers={"sure": {"ok": True}}, state=hopper.token)
    assert [entry[2] for entry in log.entries] == ["before", "before", "after"]
    log.entries.clear()
    await call(desk(), Era.LIVE, "talk_and_ask", {}, {"ok": True}, **options)
    assert [entry[2] for entry in log.entries] == ["before", "after"]


async def test_message_outside_of_a_request_reports_the_missing_client() -> None:
    with pytest.raises(ValueError, match="not available outside of a request"):
        await Context().info("to whom?")


async def test_a_resource_is_read_as_a_list_of_contents() -> None:
    async def read(uri: str) -> str:
        return (await User(desk()).call("read", {"uri": uri})).text

    assert await read("note://text") == "1 '# Note' text/markdown"
    assert await read("note://bytes/one") == "1 b'one' application/x-note"
    assert "Unknown resource: note://none" in await read("note://none")


def guarded() -> Server[Any]:
    auth = AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None)
    return desk(auth=auth, token_verifier=Badges())


async def whose(target: Instance, era: Era) -> dict[str, str | None]:
    content = (await User(target, era=era).call("whose")).value
    assert content is not None
    return content


@pytest.mark.parametrize(("era", "stateless"), [(Era.RETRY, True), (Era.RETRY, False), (Era.LIVE, False)])
async def test_the_client_id_is_that_of_the_access_token(era: Era, stateless: bool) -> None:
    async with (
        served(guarded(), stateless_http=stateless) as url,
        as_user(url, "app/ada") as first,
        as_user(url, "other/ada") as second,
    ):
        assert [(await whose(target, era))["client"] for target in (first, second)] == ["app", "other"]


async def test_session_id_is_that_of_the_http_session() -> None:
    async with served(desk()) as url:
        first, second = await whose(url, Era.LIVE), await whose(url, Era.LIVE)
        assert first["session"]
        assert second["session"]
        assert first != second
        assert await whose(url, Era.RETRY) == {"client": None, "session": None}
        # On the live era, which has sessions, the server rejects an unknown one.
        async with httpx2.AsyncClient(headers={"mcp-session-id": "0" * 32}) as web:
            unknown = streamable_http_client(url, http_client=web)
            assert (await whose(unknown, Era.RETRY))["session"] is None
    assert await whose(desk(), Era.LIVE) == {"client": None, "session": None}
