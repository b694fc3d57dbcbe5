"""The statements of the page about tools, one row for each behavior, through a real client on either era."""

import logging
import re
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.subscriptions import PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import LoggingMessageNotificationParams, ToolListChangedNotification

from roundtrip import Audio, Context, File, Image, InvalidSignature, Server
from roundtrip.testing import Era, User, served
from roundtrip.testing.tap import Tap
from tests.interaction.tools_page.arguments import TYPES, VALIDATION
from tests.interaction.tools_page.describing import DESCRIBING, injected
from tests.interaction.tools_page.errors import ERRORS, OutOfStock, raising
from tests.interaction.tools_page.registering import REFUSED, REGISTERING
from tests.interaction.tools_page.results import RESULTS, audio, image, result
from tests.interaction.tools_page.rows import ADDED, Json, Make, Row, add, adding, check, resource, returning
from tests.interaction.tools_page.seen import DUPLICATES, VERSIONS, VISIBILITY, asked, furnished, twice
from tests.kit.hosts import WAIT
from tests.kit.players import connect, sample, text_of

pytestmark = pytest.mark.anyio

PAGE: Final = [
    *REGISTERING,
    *DESCRIBING,
    *TYPES,
    *VALIDATION,
    *RESULTS,
    *ERRORS,
    *VISIBILITY,
    *DUPLICATES,
    *VERSIONS,
]


@pytest.mark.parametrize("row", PAGE, ids=lambda row: row.says)
async def test_the_page(era: Era, row: Row) -> None:
    await check(row, era)


def test_every_row_says_something_of_its_own_and_can_fail() -> None:
    assert len({row.says for row in PAGE}) == len(PAGE)
    assert [row.says for row in PAGE if not row.expects_something] == []


# What does not fit a row: refusals at registration, the log, files, threads, time, changes, the context.


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_tool_is_rejected_at_registration(what: str) -> None:
    make, words = REFUSED[what]
    with pytest.raises(InvalidSignature, match=words):
        make(Server[Any]("page"))


# What a file in a folder becomes.
FILES: list[tuple[Callable[[Path], Any], Json]] = [
    (lambda folder: Image(path=folder / "chart.png"), image(b"x", "image/png")),
    (lambda folder: Image(path=str(folder / "chart.webp")), image(b"x", "image/webp")),
    (lambda folder: Image(path=folder / "chart.png", format="jpeg"), image(b"x", "image/jpeg")),
    (lambda folder: Audio(path=folder / "bell.mp3"), audio(b"x", "audio/mpeg")),
    (lambda folder: File(path=folder / "bill.pdf"), resource(b"x", "file:///bill.pdf", "application/pdf")),
    (lambda folder: File(path=folder / "bill.pdf", format="csv"), resource(b"x", "file:///bill.pdf", "text/csv")),
    (lambda folder: File(path=folder / "bill.pdf", name="b.txt"), resource(b"x", "file:///b.txt", "application/pdf")),
]


@pytest.mark.parametrize(("make", "expected"), FILES)
async def test_path_extension_or_format_sets_the_media_type(
    era: Era, tmp_path: Path, make: Callable[[Path], Any], expected: Json
) -> None:
    for name in ("chart.png", "chart.webp", "bell.mp3", "bill.pdf"):
        (tmp_path / name).write_bytes(b"x")
    await check(result("a file", returning(make(tmp_path)), [expected], schema=None), era)


async def test_plain_functions_run_beside_each_other_and_the_loop(era: Era) -> None:
    server = Server[Any]("page")
    together = threading.Barrier(3)

    @server.tool
    def block(name: str) -> str:
        together.wait(WAIT)
        return name

    @server.tool
    async def unblock() -> str:
        await anyio.to_thread.run_sync(together.wait, WAIT)
        return "done"

    results: dict[str, str] = {}
    async with connect(server, era) as client, anyio.create_task_group() as group:

        async def run(name: str) -> None:
            results[name] = text_of(await client.call_tool("block", {"name": name}))

        group.start_soon(run, "first")
        group.start_soon(run, "second")
        assert text_of(await client.call_tool("unblock")) == "done"
    assert results == {"first": "first", "second": "second"}


def levels(caplog: pytest.LogCaptureFixture, text: str) -> list[int]:
    return [record.levelno for record in caplog.records if text in record.getMessage()]


@pytest.mark.parametrize(
    ("options", "warned"),
    [({}, 1), ({"on_duplicate_tools": "warn"}, 1), ({"on_duplicate_tools": "replace"}, 0)],
    ids=["default", "warn", "replace"],
)
def test_duplicate_tool_warns_where_configured(options: Json, warned: int, caplog: pytest.LogCaptureFixture) -> None:
    twice(Server[Any]("page", **options))
    assert levels(caplog, "Tool already exists") == [logging.WARNING] * warned


async def test_duplicate_tool_error_leaves_the_first_tool(era: Era) -> None:
    def make(server: Server[Any]) -> None:
        with pytest.raises(ValueError, match="Tool already exists: tool"):
            twice(server)

    await check(Row(says="", make=make, options={"on_duplicate_tools": "error"}, sends={}, gets="first"), era)


@pytest.mark.parametrize(("first", "second"), [("1.0", None), (None, "1.0")])
def test_mixed_versioned_and_unversioned_registrations_are_rejected(first: str | None, second: str | None) -> None:
    server = Server[Any]("page")
    returning(1, version=first)(server)
    with pytest.raises(ValueError, match="both with and without a version"):
        returning(2, version=second)(server)


async def test_failure_traceback_appears_only_in_the_log(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    server = Server[Any]("page")
    raising(OutOfStock("no more"))(server)
    assert (await User(server, era=era).call("tool")).text == "Error executing tool tool: no more"
    assert any("OutOfStock: no more" in (record.exc_text or "") for record in caplog.records)


# Timeouts.


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_slow_tool_is_a_protocol_error(era: Era, plain: bool, caplog: pytest.LogCaptureFixture) -> None:
    server = Server[Any]("page")
    release, ended = threading.Event(), threading.Event()

    @server.tool(timeout=0.5)
    async def fetch() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return "never"

    @server.tool(timeout=0.5)
    def fetch_in_a_thread() -> str:
        release.wait(WAIT)
        ended.set()
        return "too late"

    name = (fetch_in_a_thread if plain else fetch).__name__
    try:
        with anyio.fail_after(WAIT):
            with pytest.raises(MCPError) as caught:
                await User(server, era=era).call(name)
            # What is asynchronous has stopped; a thread goes on.
            assert ended.is_set() is not plain
    finally:
        release.set()
    assert (caught.value.code, caught.value.message) == (-32000, f"Tool {name!r} timed out after 0.5s")
    assert levels(caplog, f"tool {name!r} timed out after 0.5s") == [logging.WARNING]
    assert await anyio.to_thread.run_sync(ended.wait, WAIT)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_timely_tool_is_served_normally(era: Era, plain: bool) -> None:
    async def add_later(a: int, b: int) -> int:
        return a + b

    make = adding(add if plain else add_later, timeout=WAIT)
    await check(Row(says="a tool in time", make=make, **ADDED), era)


# Changes.

CHANGES: dict[str, Make] = {
    "adding": lambda s: s.add_tool(add, "third"),
    "disabling": lambda s: s.disable(keys={"tool:tool"}),
    "enabling": lambda s: s.enable(keys={"tool:other"}),
    "removing": lambda s: s.remove_tool("tool"),
    "removing from the local provider": lambda s: s.local_provider.remove_tool("tool"),
}


async def notified(server: Server[Any], era: Era, work: Callable[[Client], Awaitable[object]]) -> int:
    """Return the number of notifications of changed tools that a client gets during some work."""
    heard: list[object] = []

    @server.tool
    def finish() -> str:
        server.prompt("finished")(lambda: "finished")
        return "finished"

    async def handle(message: object) -> None:
        heard.append(message)

    if era is Era.LIVE:
        async with connect(server, era, message_handler=handle) as client:
            await work(client)
            await client.call_tool("finish")
    else:
        async with (
            connect(server, era) as client,
            client.listen(tools_list_changed=True, prompts_list_changed=True) as subscription,
        ):
            await work(client)
            await client.call_tool("finish")
            with anyio.fail_after(WAIT):
                while not isinstance(event := await anext(aiter(subscription)), PromptsListChanged):
                    heard.append(event)
    return sum(isinstance(message, ToolListChangedNotification | ToolsListChanged) for message in heard)


@pytest.mark.parametrize("how", CHANGES)
async def test_a_change_of_the_tools_in_a_request_is_notified(era: Era, how: str) -> None:
    server = Server[Any]("page")
    furnished(server)
    server.disable(keys={"tool:other"})

    @server.tool
    def change() -> str:
        CHANGES[how](server)
        return how

    assert await notified(server, era, lambda client: client.call_tool("change")) == 1


@pytest.mark.parametrize("how", CHANGES)
async def test_tool_change_outside_of_requests_is_not_announced(era: Era, how: str) -> None:
    server = Server[Any]("page")
    furnished(server)
    server.disable(keys={"tool:other"})

    async def change(client: Client) -> None:
        before = await client.list_tools()
        CHANGES[how](server)
        assert await client.list_tools() != before

    assert await notified(server, era, change) == 0


# The context.


async def test_context_offers_logs_resources_progress_model_and_request(era: Era) -> None:
    server = Server[Any]("page")

    @server.resource("note://dune")
    def note() -> str:
        return "sand"

    @server.tool(name="tool")
    async def digest(uri: str, about: Context) -> dict[str, Any]:
        await about.debug("begun")
        await about.info(f"reading {uri}")
        await about.warning("nearly done")
        await about.error("none")
        resource = await about.read_resource(uri)
        await about.report_progress(progress=50, total=100)
        return {"content": resource[0].content, "request": bool(about.request_id), "client": about.client_id}

    @server.tool
    async def summarize(ctx: Context) -> str:
        summary = await ctx.sample("Summarize Dune")
        await ctx.report_progress(progress=100, total=100)
        return summary.text

    logged: list[tuple[str, Any]] = []
    progressed: list[tuple[float, float | None]] = []

    async def log(params: LoggingMessageNotificationParams) -> None:
        logged.append((params.level, params.data))

    async def watch(progress: float, total: float | None, message: str | None) -> None:
        progressed.append((progress, total))

    callbacks: Json = {"logging_callback": log, "log_level": "debug", "sampling_callback": sample}
    async with connect(server, era, **callbacks) as client:
        listed = {tool.name: tool.input_schema["properties"] for tool in (await client.list_tools()).tools}
        result = await client.call_tool("tool", {"uri": "note://dune"}, progress_callback=watch)
        said = await client.call_tool("summarize", progress_callback=watch)
    assert [list(properties) for properties in listed.values()] == [["uri"], []]
    assert result.structured_content == {"content": "sand", "request": True, "client": None}
    assert text_of(said) == "echo: Summarize Dune"
    assert progressed == [(50, 100), (100, 100)]
    assert logged == [
        ("debug", "begun"),
        ("info", "reading note://dune"),
        ("warning", "nearly done"),
        ("error", "none"),
    ]


# What is hidden and what never was.

LOOKED_FOR: dict[str, tuple[Callable[[Client, str], Awaitable[object]], str, str]] = {
    "a tool": (lambda client, name: client.call_tool(name, {"a": 1, "b": 2}), "secret", "absent"),
    "a tool with wrong arguments": (lambda client, name: client.call_tool(name, {"a": "?"}), "secret", "absent"),
    "a version of a tool": (
        lambda client, name: client.call_tool(name, {}, meta=asked("1.0")),
        "aged_secret",
        "aged_absent",
    ),
    "a prompt": (lambda client, name: client.get_prompt(name), "secret", "absent"),
    "a resource": (lambda client, name: client.read_resource(f"note://{name}"), "secret", "absent"),
    "a template": (lambda client, name: client.read_resource(f"{name}://dune"), "secret", "absent"),
}


async def raw_answer(url: str, era: Era, look: Callable[[Client], Awaitable[object]]) -> tuple[int, bytes]:
    """Return the status and body of the response to the only request of a new client."""
    answers: list[tuple[int, bytes]] = []

    async def record(response: httpx2.Response) -> None:
        sent = response.request
        if sent.method == "POST" and re.search(b"tools/call|prompts/get|resources/read", sent.content):
            answers.append((response.status_code, await response.aread()))

    async with (
        httpx2.AsyncClient(event_hooks={"response": [record]}) as recorder,
        connect(Tap(streamable_http_client(url, http_client=recorder)), era) as client,
    ):
        with suppress(MCPError):
            await look(client)
    (answer,) = answers
    return answer


async def nameless(
    url: str, era: Era, look: Callable[[Client, str], Awaitable[object]], name: str
) -> tuple[int, bytes]:
    """The answer about a name, without the name."""
    status, body = await raw_answer(url, era, lambda client: look(client, name))
    return status, body.replace(name.encode(), b"NAME")


@pytest.mark.parametrize("what", LOOKED_FOR)
async def test_hidden_and_missing_tools_answer_identically(era: Era, what: str) -> None:
    look, secret, absent = LOOKED_FOR[what]
    server = Server[Any]("page")

    @server.resource("secret://{name}", tags={"secret"})
    def template(name: str) -> str:
        return name

    server.add_tool(add, "secret", tags={"secret"})
    server.add_tool(add, "aged_secret", tags={"secret"}, version="1.0")
    server.prompt("secret", tags={"secret"})(injected)
    server.resource("note://secret", tags={"secret"})(injected)
    server.disable(tags={"secret"})
    async with served(server) as url:
        hidden = await nameless(url, era, look, secret)
        assert hidden == await nameless(url, era, look, absent)
        server.enable(tags={"secret"})
        assert hidden != await nameless(url, era, look, secret)
