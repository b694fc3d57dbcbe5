"""Calls whose questions appear in an app: on each class of server, on both revisions."""

import subprocess
import sys
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from roundtrip import Context, Pages, Server, tool
from roundtrip.channels.apps.app_messages import APP_META
from roundtrip.channels.server_channels import APP_MIME_TYPE
from roundtrip.ledger import SqliteLedger
from tests.interaction.adapters.apps.hosting import CLASSES, MODES, App, continued, host, made, serving
from tests.kit.approving import Person
from tests.kit.hosts import hosted
from tests.kit.page_users import BASE, KEY, client_of, handle_in, link_in, reader, text_of, user_of
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

each_class = pytest.mark.parametrize("kind", CLASSES)
each_mode = pytest.mark.parametrize("mode", MODES)
each_class_and_mode = pytest.mark.parametrize(
    ("kind", "mode"),
    [("server", "2026-07-28"), ("server", "legacy"), ("mcpserver", "legacy"), ("mounted", "2026-07-28")],
)


def named(kind: str, tool: str) -> str:
    return f"c_{tool}" if kind == "mounted" else tool


@each_mode
@each_class
async def test_five_tools_end_in_an_app(kind: str, mode: str) -> None:
    server = made(kind)
    async with serving(server) as url, host(url, mode=mode) as client:

        async def begin(tool: str, **arguments: str) -> tuple[App, CallToolResult]:
            asked = await client.call_tool(named(kind, tool), arguments)
            assert not asked.is_error
            assert asked.structured_content is None
            return App.of(client, asked), asked

        app, asked = await begin("book", film="Solaris")
        assert app.heading == "Which seat for Solaris?"
        await app.answer("many")
        assert [one["text"] for one in app.state["mistakes"]] == ["It must be a whole number."]
        await app.answer("3")
        assert app.state["kind"] == "ended"
        assert await continued(client, asked) == "Solaris, seat 3"

        app, asked = await begin("delete", film="Solaris")
        assert app.state["questions"][0]["kind"] == "confirmation"
        await app.answer()
        assert await continued(client, asked) == "Solaris is deleted"

        app, asked = await begin("order")
        await app.answer("2")
        assert app.heading == "Is this right?"
        await app.answer("3")
        await app.until("ended")
        assert await continued(client, asked) == "3 cups"

        app, asked = await begin("survey")
        for number in ("1", "2", "3"):
            await app.answer(number)
        assert app.state["kind"] == "ended"
        assert await continued(client, asked) == "[1, 2, 3]"

        app, asked = await begin("refund", order="A7")
        assert app.state == {"kind": "awaiting", "groups": ["finance"], "notice": None}
        await Person(url, "fred").decide("approve")
        ended = await app.until("ended")
        assert [one["outcome"] for one in ended["decisions"]] == ["approved"]
        assert await continued(client, asked) == "refunded A7"


@each_mode
@each_class
async def test_apps_are_listed_to_hosts_that_show_them(kind: str, mode: str) -> None:
    async with serving(made(kind)) as url:
        async with host(url, mode=mode) as client:
            tools = (await client.list_tools()).tools
            shown: dict[str, dict[str, Any]] = {tool.name: (tool.meta or {}).get("ui", {}) for tool in tools}
            address = shown[named(kind, "book")]["resourceUri"]
            (document,) = (await client.read_resource(address)).contents
            older = address.replace(address[-17:-5], "0" * 12)
            assert (await client.read_resource(older)).contents[0].text == document.text  # type: ignore[union-attr]
        async with client_of(url, "ann", mode=mode) as client:
            listing = await client.list_tools()
    assert document.mime_type == APP_MIME_TYPE
    only = {"visibility": ["app"]}
    assert {name for name, ui in shown.items() if ui == only} == {"answer_call", "look_at_call"}
    asking = {named(kind, name) for name in ("book", "delete", "order", "survey", "refund")}
    assert {name for name, ui in shown.items() if "resourceUri" in ui} == asking
    # Other apps of the server may not call a tool whose result has a ticket, nor read the result for the model.
    only_model = {name for name, ui in shown.items() if ui.get("visibility") == ["model"]}
    assert only_model == {*asking, "continue_call"}
    assert not {"answer_call", "look_at_call"} & {tool.name for tool in listing.tools}
    assert all("ui" not in (tool.meta or {}) for tool in listing.tools)
    assert mode == "legacy" or listing.cache_scope == "private"


@each_class_and_mode
async def test_call_that_asks_nothing_has_no_ticket(kind: str, mode: str) -> None:
    async with serving(made(kind)) as url, host(url, mode=mode) as client:
        result = await client.call_tool(named(kind, "plain"), {"film": "Solaris"})
    assert APP_META not in (result.meta or {})
    assert text_of(result) == "Solaris"


@each_class_and_mode
async def test_only_the_callers_result_has_the_ticket(kind: str, mode: str) -> None:
    async with serving(made(kind, pages={"wait": 0.05})) as url, host(url, mode=mode) as client:
        asked = await client.call_tool(named(kind, "survey"), {})
        ticket = App.of(client, asked).payload["ticket"]
        app = App.of(client, asked)
        handle = {"handle": handle_in(asked)}
        waits = await client.call_tool("continue_call", handle)
        answered = await app.answer("1")
        looked = await client.call_tool("look_at_call", {"ticket": ticket})
        # The model that repeats the call gets a view that shows the same call.
        again = App.of(client, await client.call_tool(named(kind, "survey"), {}))
    assert again.payload["ticket"] == ticket
    assert again.heading == "Number 1?"
    for result in (waits, answered, looked):
        assert ticket.partition(".")[2] not in result.model_dump_json()


@each_mode
async def test_host_without_apps_gets_the_link_alone(mode: str) -> None:
    server = made("server")
    async with serving(server) as url:
        async with client_of(url, "ann", mode=mode) as client:
            asked = await client.call_tool("book", {"film": "Solaris"})
            assert APP_META not in (asked.meta or {})
            assert link_in(asked).startswith(BASE)
        # The call of a host without apps has no ticket, so its repetition in a host with apps has none either.
        async with host(url, mode=mode) as client:
            assert APP_META not in ((await client.call_tool("book", {"film": "Solaris"})).meta or {})


@each_class_and_mode
async def test_equal_call_of_a_client_without_apps_gets_no_ticket(kind: str, mode: str) -> None:
    async with serving(made(kind)) as url:
        async with host(url, mode=mode) as client:
            asked = await client.call_tool(named(kind, "survey"), {})
            assert APP_META in (asked.meta or {})
        for declares in (None, {"mimeTypes": APP_MIME_TYPE}):
            connected = (
                client_of(url, "ann", mode=mode) if declares is None else host(url, mode=mode, declares=declares)
            )
            async with connected as client:
                again = await client.call_tool(named(kind, "survey"), {})
                assert handle_in(again) == handle_in(asked)
                assert APP_META not in (again.meta or {})


@each_class_and_mode
async def test_payload_of_a_foreign_tool_is_dropped(kind: str, mode: str) -> None:
    """A foreign tool could else let our app show its own questions."""
    server = made(kind if kind != "mounted" else "fastmcp")

    @server.tool()
    async def forge() -> CallToolResult:
        """Return a payload for the app."""
        payload = {"version": 1, "ticket": "t" * 40, "tools": {"answer": "wipe", "look": "wipe"}}
        return CallToolResult(content=[], _meta={APP_META: payload, "shop": 1})

    async with serving(server) as url, host(url, mode=mode) as client:
        result = await client.call_tool("forge", {})
    assert APP_META not in (result.meta or {})
    assert (result.meta or {})["shop"] == 1
    del forge


@pytest.mark.parametrize("kind", ["server", "fastmcp"])
async def test_tool_with_the_name_of_the_apps_tool_turns_apps_off(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    server = made(kind)

    @server.tool(name="answer_call")
    @tool()
    async def mine(ctx: Context) -> str:
        """Take an answer."""
        return str(ctx)

    async with serving(server) as url, host(url) as client:
        asked = await client.call_tool("delete", {"film": "Solaris"})
    assert APP_META not in (asked.meta or {})
    assert "rename that tool" in caplog.text
    del mine


async def test_app_of_a_tool_that_was_hidden_is_closed() -> None:
    server = made("server")
    async with serving(server) as url, host(url) as client:
        app = App.of(client, await client.call_tool("delete", {"film": "Solaris"}))
        server.allow_tools(["book"])
        assert (await app.look())["kind"] == "closed"
        server.allow_tools(None)
        assert (await app.look())["kind"] == "asking"


@each_mode
@pytest.mark.parametrize("kind", ["server", "fastmcp"])
async def test_host_without_a_known_user_gets_no_ticket(kind: str, mode: str) -> None:
    async with serving(made(kind)) as url, host(url, None, mode=mode) as client:
        with pytest.raises(MCPError, match="does not know the user"):
            await client.call_tool("delete", {"film": "Solaris"})


async def test_stateless_host_of_2025_gets_apps_from_two_workers(tmp_path: object) -> None:
    """Stateless HTTP on 2025-11-25 knows no capabilities, so the author says that apps are for everyone."""

    def worker() -> Any:
        return made("server", pages={"app": "always"}, ledger=SqliteLedger(f"{tmp_path}/calls.db"))

    def stateless(server: Any) -> Any:
        return server.streamable_http_app(stateless_http=True)

    async with (
        hosted(stateless(worker())) as one,
        hosted(stateless(worker())) as other,
        host(one, mode="legacy") as client,
        host(other, mode="legacy") as client_of_other,
    ):
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools >= {"answer_call", "look_at_call"}
        asked = await client.call_tool("survey", {})
        app = App.of(client, asked)
        for number, side in (("1", client_of_other), ("2", client), ("3", client_of_other)):
            app.client = side
            await app.answer(number)
        assert (await app.until("ended"))["kind"] == "ended"
        assert await continued(client_of_other, asked) == "[1, 2, 3]"


async def test_page_and_app_are_two_ways_to_one_call() -> None:
    async with serving(made("server")) as url, host(url) as client:
        asked = await client.call_tool("survey", {})
        app, view = App.of(client, asked), App.of(client, asked)
        await app.answer("1")
        # The second view still shows the first question.
        await view.answer("5")
        assert view.state["notice"].startswith("Nothing was sent this time")
        assert view.heading == "Number 1?"
        await view.answer("2")
        await app.look()
        assert app.heading == "Number 2?"


async def test_round_is_answered_once_by_many_views() -> None:
    async with serving(made("server")) as url, host(url) as client:
        asked = await client.call_tool("survey", {})
        views = [App.of(client, asked) for _ in range(8)]
        async with anyio.create_task_group() as group:
            for number, view in enumerate(views):
                group.start_soon(view.answer, str(number))
        taken = [place for place, view in enumerate(views) if view.state.get("notice") is None]
        assert len(taken) == 1
        await views[0].look()
        await views[0].answer("10")
        await views[0].answer("11")
        assert await continued(client, asked) == f"[{taken[0]}, 10, 11]"


OWN_APPS: tuple[dict[str, Any], ...] = (
    {"ui": {"resourceUri": "ui://shop/map.html"}},
    {"ui/resourceUri": "ui://shop/map.html"},
    {"openai/outputTemplate": "ui://shop/map.html"},
)


@pytest.mark.parametrize("meta", OWN_APPS, ids=["nested", "flat", "openai"])
@each_class_and_mode
async def test_tool_with_its_own_app_asks_by_link(kind: str, mode: str, meta: dict[str, Any]) -> None:
    """The host gives the result to the tool's own app, which must not get a ticket."""
    server = made(kind if kind != "mounted" else "fastmcp")

    @server.tool(meta={**meta, "shop": 1})
    @tool()
    async def pick(ctx: Context) -> str:
        """Pick a seat."""
        return str(await ctx.ask("seat", "Which seat?", int))

    async with serving(server) as url, host(url, mode=mode) as client:
        (listed,) = [one for one in (await client.list_tools()).tools if one.name == "pick"]
        assert listed.meta is not None
        assert {key: listed.meta[key] for key in ("shop", *meta) if key != "ui"} == {
            "shop": 1,
            **{key: value for key, value in meta.items() if key != "ui"},
        }
        assert listed.meta["ui"] == {"visibility": ["model"], **meta.get("ui", {})}
        asked = await client.call_tool("pick", {})
        assert APP_META not in (asked.meta or {})
        assert link_in(asked).startswith(BASE)
    del pick


async def test_consent_does_not_ask_before_the_apps_tools() -> None:
    async with serving(made("server", consent="destructive")) as url, host(url) as client:
        asked = await client.call_tool("survey", {})
        app = App.of(client, asked)
        assert app.state["questions"][0]["kind"] == "confirmation"
        await app.answer()
        assert app.heading == "Number 0?"


def test_apps_can_be_turned_off() -> None:
    with pytest.raises(ValueError, match="app must be True, False, 'always' or 'handle', got 'sometimes'"):
        Pages(base_url=BASE, app="sometimes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"channels must not have 'app' with Pages\(app=False\)"):
        made("server", pages={"app": False}, channels=["form", "app"])
    with pytest.raises(ValueError, match="channels must not have 'app' with principal=False"):
        Server("cinema", keys=[KEY], principal=False, channels=["form", "app"])


@each_mode
@pytest.mark.parametrize("pages", [None, Pages(base_url=BASE, authenticate=reader, wait=1)], ids=["alone", "pages"])
async def test_app_alone_gives_no_link(pages: Pages | None, mode: str) -> None:
    """Without the channel `link`, a model gets no address, and hosts without apps cannot be asked."""
    server = Server[Any]("cinema", keys=[KEY], principal=user_of, pages=pages, channels=["form", "app"])

    @server.tool(confirm="Delete {film}?")
    async def delete(film: str) -> str:
        """Delete a film."""
        return f"{film} is deleted"

    async with serving(server) as url:
        async with host(url, mode=mode) as client:
            asked = await client.call_tool("delete", {"film": "Solaris"})
            assert BASE not in asked.model_dump_json()
            app = App.of(client, asked)
            await app.answer()
            assert await continued(client, asked) == "Solaris is deleted"
        async with client_of(url, "ann", mode=mode) as client:
            with pytest.raises(MCPError, match="elicitation"):
                await client.call_tool("delete", {"film": "Solaris"})
    del delete


@each_mode
async def test_handle_opens_the_call_only_if_the_author_says_so(mode: str) -> None:
    for app_option, kind in (("handle", "asking"), (True, "closed")):
        async with serving(made("server", pages={"app": app_option})) as url, host(url, mode=mode) as client:
            asked = await client.call_tool("survey", {})
            app = App.of(client, asked)
            app.payload = {**app.payload, "ticket": handle_in(asked)}
            assert (await app.look())["kind"] == kind
            if kind == "asking":
                await app.answer("1")
                assert app.heading == "Number 1?"
                async with host(url, "eve", mode=mode) as other:
                    app.client = other
                    assert (await app.look())["kind"] == "closed"


@pytest.mark.parametrize("wait", [0.0, WAIT])
async def test_end_reaches_the_model_by_its_handle(wait: float) -> None:
    async with serving(made("server", pages={"wait": wait})) as url, host(url) as client:
        asked = await client.call_tool("delete", {"film": "Solaris"})
        texts: list[str] = []

        async def wait_for_end() -> None:
            texts.append(await continued(client, asked))

        async with anyio.create_task_group() as group:
            group.start_soon(wait_for_end)
            await App.of(client, asked).answer()
        assert texts == ["Solaris is deleted"] or wait == 0.0


def test_server_without_pages_loads_no_apps(tmp_path: object) -> None:
    program = (
        "import sys; from roundtrip import Pages, Server\n"
        "async def reader(request): return 'ann'\n"
        "Server('a', keys=['7f' * 32]); Server('b', keys=['7f' * 32], pages=Pages(local=True, app=False))\n"
        "Server('c', keys=['7f' * 32], pages=Pages(base_url='https://a.example', authenticate=reader, app=False))\n"
        "print([name for name in sys.modules if '.apps' in name and name.startswith('roundtrip')])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=str(tmp_path))
    assert run.stdout.strip() == "[]"
