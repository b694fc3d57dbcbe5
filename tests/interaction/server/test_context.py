"""A tool's context besides questions: messages, progress, resources, and the caller of the request."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp_types import LoggingLevel, LoggingMessageNotificationParams
from pydantic import AnyHttpUrl, BaseModel

from roundtrip import Context, Server
from roundtrip.testing import Era, LegByLeg, User, served
from roundtrip.testing.networks.fleet import Instance
from roundtrip.testing.tap import Tap
from tests.kit.hosts import stdio
from tests.kit.players import call, connect, text_of

pytestmark = pytest.mark.anyio


class Choice(BaseModel):
    ok: bool


def desk(**options: Any) -> Server[Any]:
    server = Server[Any]("desk", **options)

    @server.tool()
    async def talk(ctx: Context) -> str:
        await ctx.debug("looking")
        await ctx.info("found", logger_name="desk")
        await ctx.warning({"left": [1, None, "two"], "none": None})
        await ctx.error("broken", extra={"shelf": 3})
        await ctx.log("notice", 7)
        return "talked"

    @server.tool()
    def talk_in_a_thread(ctx: Context) -> str:
        ctx.blocking.debug("looking")
        ctx.blocking.info("found", logger_name="desk")
        ctx.blocking.warning({"left": [1, None, "two"], "none": None})
        ctx.blocking.error("broken", extra={"shelf": 3})
        ctx.blocking.log("notice", 7)
        return "talked"

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        await ctx.report_progress(2, 2)
        return "done"

    @server.tool()
    def work_in_a_thread(ctx: Context) -> str:
        ctx.blocking.report_progress(1, 2, "half")
        ctx.blocking.report_progress(2, 2)
        return "done"

    @server.tool()
    async def read(uri: str, ctx: Context) -> str:
        contents = await ctx.read_resource(uri)
        first = contents[0]
        return f"{len(contents)} {first.content!r} {first.mime_type}"

    @server.tool()
    def read_in_a_thread(uri: str, ctx: Context) -> str:
        contents = ctx.blocking.read_resource(uri)
        return f"{len(contents)} {contents[0].content!r} {contents[0].mime_type}"

    @server.tool()
    async def whose(ctx: Context) -> dict[str, str | None]:
        return {"client": ctx.client_id, "session": ctx.session_id}

    @server.tool()
    def whose_in_a_thread(ctx: Context) -> dict[str, str | None]:
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


ENTRIES = [
    ("debug", None, "looking"),
    ("info", "desk", "found"),
    ("warning", None, {"left": [1, None, "two"], "none": None}),
    ("error", None, {"msg": "broken", "extra": {"shelf": 3}}),
    ("notice", None, 7),
]
TRANSPORTS: Mapping[str, Mapping[str, bool] | None] = {
    "memory": None,
    "http": {},
    "http stateless": {"stateless_http": True},
}


@asynccontextmanager
async def serving(transport: str) -> AsyncGenerator[Instance]:
    options = TRANSPORTS[transport]
    if options is None:
        yield desk()
    else:
        async with served(desk(), **options) as url:
            yield url


@pytest.mark.parametrize("tool", ["talk", "talk_in_a_thread"])
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_messages_reach_the_log_of_a_client_that_wants_them(era: Era, transport: str, tool: str) -> None:
    log = Log()
    async with serving(transport) as target:
        result = await call(target, era, tool, logging_callback=log, log_level="debug")
    assert text_of(result) == "talked"
    assert log.entries == ENTRIES


@pytest.mark.parametrize(
    ("level", "levels"),
    [(None, []), ("warning", ["warning", "error"]), ("notice", ["warning", "error", "notice"]), ("critical", [])],
)
async def test_client_of_2026_gets_requested_log_messages(level: LoggingLevel | None, levels: list[str]) -> None:
    log = Log()
    await call(desk(), Era.RETRY, "talk", logging_callback=log, log_level=level)
    assert [entry[0] for entry in log.entries] == levels


async def test_an_older_client_gets_all_messages() -> None:
    log = Log()
    await call(desk(), Era.LIVE, "talk", logging_callback=log)
    assert log.entries == ENTRIES


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


@pytest.mark.parametrize("tool", ["work", "work_in_a_thread"])
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_progress_reaches_the_client(era: Era, transport: str, tool: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def watch(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with serving(transport) as target, connect(target, era) as client:
        assert text_of(await client.call_tool(tool, {}, progress_callback=watch)) == "done"
        assert text_of(await client.call_tool(tool, {})) == "done"
    assert seen == [(1, 2, "half"), (2, 2, None)]


@pytest.mark.parametrize("tool", ["read", "read_in_a_thread"])
async def test_a_resource_is_read_as_a_list_of_contents(era: Era, tool: str) -> None:
    async def read(uri: str) -> str:
        return (await User(desk(), era=era).call(tool, {"uri": uri})).text

    assert await read("note://text") == "1 '# Note' text/markdown"
    assert await read("note://bytes/one") == "1 b'one' application/x-note"
    assert "Unknown resource: note://none" in await read("note://none")


class Badges:
    """Verifier that takes a bearer token for the name of its client."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id=f"client {token}", scopes=[], subject="somebody")


def guarded() -> Server[Any]:
    auth = AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None)
    return desk(auth=auth, token_verifier=Badges())


CLAIMED = {"mcp-session-id": "0" * 32}


@asynccontextmanager
async def transport_to(url: str, headers: Mapping[str, str]) -> AsyncGenerator[Tap]:
    async with httpx2.AsyncClient(headers=dict(headers)) as client:
        yield Tap(streamable_http_client(url, http_client=client))


async def whose(target: Instance, era: Era, tool: str = "whose") -> dict[str, str | None]:
    content = (await User(target, era=era).call(tool)).value
    assert content is not None
    return content


@pytest.mark.parametrize("tool", ["whose", "whose_in_a_thread"])
@pytest.mark.parametrize("stateless", [False, True])
async def test_the_client_id_is_that_of_the_access_token(era: Era, stateless: bool, tool: str) -> None:
    async with (
        served(guarded(), stateless_http=stateless) as url,
        transport_to(url, {"Authorization": "Bearer a"}) as first,
        transport_to(url, {"Authorization": "Bearer b"}) as second,
    ):
        assert (await whose(first, era, tool))["client"] == "client a"
        assert (await whose(second, era, tool))["client"] == "client b"


async def test_without_authentication_there_is_no_client_id(era: Era) -> None:
    assert (await whose(desk(), era))["client"] is None
    async with served(desk()) as url:
        assert (await whose(url, era))["client"] is None


async def test_stdio_has_messages_and_progress_but_no_session(era: Era) -> None:
    log = Log()
    seen: list[float] = []

    async def watch(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with connect(stdio(desk), era, logging_callback=log, log_level="debug") as client:
        await client.call_tool("talk", {})
        await client.call_tool("work_in_a_thread", {}, progress_callback=watch)
        whose = (await client.call_tool("whose", {})).structured_content
    assert log.entries == ENTRIES
    assert seen == [1, 2]
    assert whose == {"client": None, "session": None}


async def test_session_id_is_that_of_the_http_session() -> None:
    async with served(desk()) as url:
        first, second = await whose(url, Era.LIVE), await whose(url, Era.LIVE)
        assert first["session"]
        assert second["session"]
        assert first != second
        assert (await whose(url, Era.RETRY))["session"] is None
    assert (await whose(desk(), Era.LIVE))["session"] is None


@pytest.mark.parametrize(("era", "stateless"), [(Era.RETRY, False), (Era.RETRY, True), (Era.LIVE, True)])
async def test_unverified_session_id_is_ignored(era: Era, stateless: bool) -> None:
    """On the live era, which has sessions, the server rejects an unknown one."""
    async with served(desk(), stateless_http=stateless) as url, transport_to(url, CLAIMED) as target:
        assert (await whose(target, era))["session"] is None
