"""Consent under `install` on FastMCP: plain tools that may destroy ask, however they arrive."""

import logging
import re
from collections.abc import Iterable
from typing import Annotated, Any

import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.apps import FastMCPApp
from fastmcp.client.elicitation import ElicitResult
from fastmcp.exceptions import ToolError
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.server import create_proxy
from fastmcp.server.middleware import Middleware
from fastmcp.server.providers.addressing import hashed_backend_name
from fastmcp.server.transforms import Transform
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools import Tool
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult, ToolAnnotations

import roundtrip
from roundtrip import Elicit, Pages, Resolve, Server
from roundtrip.adapters import fastmcp_consent
from roundtrip.errors import RoundtripError
from roundtrip.fastmcp import install
from roundtrip.install import install as install_in_sdk
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import ACCEPT, User
from roundtrip.testing.networks.fleet import KEYS
from tests.interaction.adapters.arrivals import WAYS, Sandbox, free, outcome_of
from tests.kit.hosts import hosted
from tests.kit.page_users import BASE, KEY, Browser, client_of, handle_in, link_in, reader, text_of, user_of
from tests.kit.peer import peers

pytestmark = pytest.mark.anyio

READS = ToolAnnotations(read_only_hint=True)
LEFT_OUT = ("prompt as a tool", "template as a tool")
"""Ways in which a client reaches a prompt or a resource."""
each_mode = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.mark.parametrize("way", WAYS)
async def test_plain_tool_never_runs_without_consent(way: str) -> None:
    declined = await outcome_of(way, free, True, consent="destructive")
    accepted = await outcome_of(way, free, True, consent="destructive", accepts=True)
    assert (declined, accepted) == (("ran", "ran") if way in LEFT_OUT else ("asked", "asked, then ran"))


class Shop:
    """Servers, a client that accepts or declines, and what it was asked."""

    def __init__(self, consent: Any = "destructive", mcp: FastMCP[Any] | None = None, **options: Any) -> None:
        self.done: list[str] = []
        self.asked: list[str] = []
        self.mcp = mcp or FastMCP[Any]("shop")
        install(self.mcp, keys=KEYS[:1], consent=consent, **options)

    def delete(self, path: str) -> str:
        self.done.append(path)
        return f"deleted {path}"

    def free(self, path: str) -> str:
        return self.delete(path)

    def own(self, path: str) -> str:
        return self.delete(path)

    async def call(self, tool: str, mode: str, /, *, accepts: bool = True, on: Any = None, **arguments: Any) -> str:
        async def answering(message: str, *_: Any) -> ElicitResult[Any]:
            self.asked.append(message.partition("\n")[0])
            return ElicitResult(action="accept", content={}) if accepts else ElicitResult(action="decline")

        async with Client(on or self.mcp, elicitation_handler=answering, mode=mode) as client:
            return text_of(await client.call_tool_mcp(tool, arguments))

    def take(self) -> tuple[list[str], list[str]]:
        """Return what was asked and done since the last time."""
        taken = self.asked, self.done
        self.asked, self.done = [], []
        return taken


@each_mode
async def test_asking_function_asks_for_consent_first(mode: str) -> None:
    shop = Shop()

    async def how_many(path: str) -> Elicit[int]:
        return Elicit(f"How many of {path}?", int)

    async def sweep(path: str, count: Annotated[int, Resolve(how_many)]) -> str:
        shop.done.append(path)
        return "swept"

    shop.mcp.tool(sweep)
    shop.mcp.tool(roundtrip.tool(consent=False)(shop.free), name="free")
    shop.mcp.tool(roundtrip.tool(confirm="Sure?")(shop.own), name="own")
    assert "declined" in await shop.call("sweep", mode, accepts=False, path="a")
    assert shop.take() == (['Allow "sweep" to run?'], [])
    assert await shop.call("own", mode, path="a") == "deleted a"
    assert await shop.call("free", mode, path="a") == "deleted a"
    assert shop.take() == (["Sure?"], ["a", "a"])


@each_mode
async def test_tools_that_the_author_calls_are_covered(mode: str) -> None:
    shop = Shop()
    shop.mcp.tool(shop.delete)

    async def call_delete(ctx: Context) -> str:
        result = await ctx.fastmcp.call_tool("delete", {"path": "inner"})
        return str(result.content)

    shop.mcp.tool(call_delete, name="asks")
    shop.mcp.tool(call_delete, name="reads", annotations=READS)
    await shop.call("asks", mode)
    assert shop.take() == (['Allow "asks" to run?'], ["inner"])
    await shop.call("reads", mode)
    assert shop.take() == ([], ["inner"])
    # A search passes the client's call on.
    shop.mcp.add_transform(BM25SearchTransform())
    await shop.call("call_tool", mode, name="delete", arguments={"path": "found"})
    await shop.call("call_tool", mode, name="reads", arguments={})
    assert shop.take() == (['Allow "delete" to run?'], ["found", "inner"])


@each_mode
async def test_program_asks_whatever_the_rule_says(mode: str) -> None:
    shop = Shop("marked")
    shop.mcp.tool(lambda: shop.delete("a"), name="t")
    shop.mcp.add_transform(CodeMode(sandbox_provider=Sandbox()))
    for accepts, done in {False: [], True: ["a"]}.items():
        await shop.call("search", mode, accepts=accepts, query="t")
        await shop.call("execute", mode, accepts=accepts, code="t()")
        assert shop.take() == (['Allow "execute" to run?'], done)


@each_mode
@pytest.mark.parametrize("has_install", [False, True])
async def test_mounted_search_asks_about_the_tool_it_calls(mode: str, has_install: bool) -> None:
    shop, child = Shop(), FastMCP[Any]("child")
    if has_install:
        install(child, keys=KEYS[:1])
        child.tool(roundtrip.tool(confirm="Sure?")(shop.own), name="own")
    child.tool(shop.delete)
    child.tool(shop.delete, name="read", annotations=READS)
    child.add_transform(BM25SearchTransform())
    shop.mcp.mount(child, namespace="n")
    for name, question in {"delete": 'Allow "delete" to run?', "read": None, "own": "Sure?"}.items():
        if name != "own" or has_install:
            await shop.call("n_call_tool", mode, name=name, arguments={"path": "a"})
            assert shop.take() == ([question] if question else [], ["a"])
    await shop.call("n_call_tool", mode, accepts=False, name="delete", arguments={"path": "a"})
    # What the search calls is unknown.
    await shop.call("n_call_tool", mode, accepts=False, name="unknown", arguments={})
    assert shop.take() == (['Allow "delete" to run?', 'Allow "n_call_tool" to run?'], [])


@each_mode
async def test_each_server_decides_about_its_own_tools(mode: str) -> None:
    shop = Shop()
    shop.mcp.tool(shop.delete)
    marked, plain, bare = (FastMCP[Any](name) for name in ("marked", "plain", "bare"))
    install(marked, keys=KEYS[:1], consent="marked")
    install(plain, keys=KEYS[:1])
    both = FastMCP[Any]("both")
    install(both, keys=KEYS[:1], consent="destructive")
    for outer in (marked, plain, bare, both):
        outer.mount(shop.mcp, namespace="n")
    own = 'Allow "delete", on server "shop", to run?'
    for outer, question in ((marked, own), (plain, own), (both, 'Allow "n_delete" to run?')):
        assert await shop.call("n_delete", mode, on=outer, path="a") == "deleted a"
        assert shop.take() == ([question], ["a"])
        assert "declined" in await shop.call("n_delete", mode, on=outer, accepts=False, path="a")
        assert shop.take()[1] == []
    assert "also call install()" in await shop.call("n_delete", mode, on=bare, path="a")
    assert shop.take() == ([], [])


@each_mode
@pytest.mark.parametrize("trusts", [False, True])
async def test_hints_of_proxied_tools_count_if_trusted(mode: str, trusts: bool) -> None:
    shop, other = Shop(trust_hints=trusts), FastMCP[Any]("other")
    other.tool(shop.delete, name="read", annotations=READS)
    shop.mcp.mount(create_proxy(other))
    assert await shop.call("read", mode, path="a") == "deleted a"
    assert shop.take() == ([] if trusts else ['Allow "read" to run?'], ["a"])
    # A mounted server in this process is the author's own.
    shop.mcp.mount(other, namespace="own")
    assert await shop.call("own_read", mode, path="a") == "deleted a"
    assert shop.take() == ([], ["a"])


class LooksTwice(Transform):
    """Transform that looks a tool up on its own server, before and after FastMCP does."""

    def __init__(self, mcp: FastMCP[Any]) -> None:
        self._mcp = mcp
        self._is_inner = False

    async def get_tool(self, name: str, call_next: Any, *, version: Any = None) -> Tool | None:
        if self._is_inner:
            return await call_next(name, version=version)
        self._is_inner = True
        await self._mcp.get_tool(name)
        found = await call_next(name, version=version)
        await self._mcp.get_tool(name)
        self._is_inner = False
        return found


@each_mode
async def test_tool_that_is_looked_up_by_other_code_asks(mode: str) -> None:
    shop = Shop()
    shop.mcp.tool(shop.delete)
    shop.mcp.add_transform(LooksTwice(shop.mcp))
    assert "declined" in await shop.call("delete", mode, accepts=False, path="a")
    assert shop.take() == (['Allow "delete" to run?'], [])


class Middlewares(Middleware):
    """Middleware that does one thing before, or instead of, passing a call on."""

    def __init__(self, does: str) -> None:
        self._does = does

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        if self._does == "helps" and context.message.name != "helper":
            await context.fastmcp_context.fastmcp.call_tool("helper", {"path": "helped"})
        if self._does == "rewrites":
            context = context.copy(message=context.message.model_copy(update={"arguments": {"path": "rewritten"}}))
        try:
            return await call_next(context)
        except ToolError:
            if self._does != "retries":
                raise
            return await call_next(context)


@each_mode
async def test_middleware_may_call_other_tools_and_repeat_the_call(mode: str) -> None:
    shop = Shop()

    @shop.mcp.tool
    def flaky(path: str) -> str:
        shop.done.append(path)
        if shop.done.count(path) == 1:
            raise ToolError("again")
        return "done"

    shop.mcp.tool(shop.delete, name="helper")
    shop.mcp.add_middleware(Middlewares("retries"))
    assert await shop.call("flaky", mode, path="a") == "done"
    assert shop.take() == (['Allow "flaky" to run?'], ["a", "a"])
    shop.mcp.add_middleware(Middlewares("helps"))
    shop.mcp.add_middleware(Middlewares("rewrites"))
    assert await shop.call("flaky", mode, path="a") == "done"
    asked, done = shop.take()
    assert (asked, {*done}) == (['Allow "flaky" to run?'], {"rewritten"})
    del flaky


@each_mode
async def test_each_request_asks_for_itself(mode: str) -> None:
    shop = Shop()
    shop.mcp.tool(shop.delete)
    answers: list[str] = []

    @shop.mcp.tool(annotations=READS)
    async def read(ctx: Context) -> str:
        # The client in the same process calls another tool while this one runs.
        answers.append(await shop.call("delete", mode, accepts=False, path="inner"))
        return "read"

    async def decline_after_a_call(*_: Any) -> ElicitResult[Any]:
        answers.append(await shop.call("delete", mode, accepts=False, path="while asked"))
        return ElicitResult(action="decline")

    assert await shop.call("read", mode) == "read"
    async with Client(shop.mcp, elicitation_handler=decline_after_a_call, mode=mode) as client:
        await client.call_tool_mcp("delete", {"path": "outer"})
    assert shop.take() == (['Allow "delete" to run?'] * 2, [])
    assert ["declined" in answer for answer in answers] == [True, True]
    del read


@each_mode
async def test_code_around_an_asking_tool_is_rejected(mode: str) -> None:
    shop = Shop()
    shop.mcp.tool(roundtrip.tool(confirm="Sure?")(shop.own), name="own")
    parent = await shop.mcp.get_tool("own")
    assert parent is not None
    shop.mcp.add_tool(Tool.from_tool(parent, name="alias", transform_fn=shop.delete))
    shop.mcp.add_tool(Tool.from_tool(parent, name="renamed"))
    assert "must not run code of its own around tool 'own'" in await shop.call("alias", mode, path="a")
    assert await shop.call("renamed", mode, path="a") == "deleted a"
    assert shop.take() == (["Sure?"], ["a"])


async def test_answer_counts_for_the_tool_that_was_shown() -> None:
    """Shows S5."""
    shop, reads = Shop(), Shop()
    shop.mcp.tool(shop.delete, version="1")
    shop.mcp.tool(shop.free, name="delete", version="2")
    reads.mcp.tool(reads.delete, annotations=READS)

    async def unused(*_: Any) -> ElicitResult[Any]:
        raise AssertionError

    async def leg(server: Any, action: str, state: str | None, **meta: Any) -> Any:
        answers: Any = {"confirm:delete": {"action": action}} if state is not None else None
        async with Client(server, mode="2026-07-28", elicitation_handler=unused) as client:
            session: Any = client.session
            return await session.call_tool(
                "delete", {"path": "a"}, input_responses=answers, request_state=state, allow_input_required=True, **meta
            )

    asked = await leg(shop.mcp, "accept", None, meta={"fastmcp": {"version": "1"}})
    assert asked.input_requests["confirm:delete"].params.message.startswith('Allow "delete", version "1", to run?')
    again = await leg(shop.mcp, "accept", asked.request_state)
    assert again.input_requests["confirm:delete"].params.message.startswith('Allow "delete", version "2", to run?')
    # On another build the tool asks no more. A user who has declined must get what they decided.
    plain = Shop()
    plain.mcp.tool(plain.delete)
    asked = await leg(plain.mcp, "accept", None)
    declined = await leg(reads.mcp, "decline", asked.request_state)
    assert declined.is_error
    assert (shop.done, reads.done) == ([], [])


@pytest.mark.parametrize("tool", ["delete", "own"])
async def test_malformed_answers_are_rejected_by_fastmcp(tool: str) -> None:
    """Shows S9."""
    shop = Shop()
    shop.mcp.tool(shop.delete)
    shop.mcp.tool(roundtrip.tool(confirm="Sure?")(shop.own), name="own")
    async with peers(shop.mcp) as (peer,):
        request: dict[str, Any] = {"name": tool, "arguments": {"path": "a"}}
        asked = await peer.ask("tools/call", **request)
        answers = {f"confirm:{tool}": {"action": "perhaps"}}
        reply = await peer.send("tools/call", **request, requestState=asked["requestState"], inputResponses=answers)
    assert reply["error"]["code"] == -32602
    assert "perhaps" not in reply["error"]["message"]
    assert shop.done == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_client_cannot_write_lines_of_the_question(mode: str) -> None:
    shop, asked = Shop(), list[str]()

    class Anything(Tool):
        async def run(self, arguments: dict[str, Any]) -> Any:
            raise AssertionError(arguments)

    shop.mcp.add_tool(Anything(name="any", parameters={"type": "object", "additionalProperties": True}))

    async def declining(message: str, *_: Any) -> ElicitResult[Any]:
        asked.append(message)
        return ElicitResult(action="decline")

    async with Client(shop.mcp, elicitation_handler=declining, mode=mode) as client:
        await client.call_tool_mcp("any", {'path: "a"\n\n\x1b[2J': 1, "n" * 300: 2})
        many = await client.call_tool_mcp("any", {f"name{number}": number for number in range(3000)})
    assert asked == [
        'Allow "any" to run?\n\n"path: \\"a\\"\\n\\n\\u001b[2J": 1\n' + "n" * 300 + ": 2",
    ]
    assert "must have at most 20000 characters" in text_of(many)


@each_mode
async def test_errors_are_those_of_the_tool(mode: str) -> None:
    told: list[list[str]] = []
    for consent in (None, "destructive"):
        shop = Shop(consent, mcp=FastMCP("shop", mask_error_details=True))

        def fail(kind: str) -> str:
            raise {
                "sdk": SdkToolError("sdk"),
                "own": RoundtripError("private"),
                "group": ExceptionGroup("many", [ToolError("inner")]),
                "told": ToolError("told"),
                "crash": ValueError("crash"),
            }[kind]

        shop.mcp.tool(fail)
        kinds = ("sdk", "own", "group", "told", "crash")
        told.append([await shop.call("fail", mode, kind=kind) for kind in kinds])
    assert told[0] == told[1]


@each_mode
async def test_tool_of_an_app_asks_under_each_name(mode: str) -> None:
    shop, app = Shop(), FastMCPApp("app")
    app.tool()(shop.delete)
    shop.mcp.add_provider(app)
    for name in ("delete", hashed_backend_name("app", "delete")):
        assert "declined" in await shop.call(name, mode, accepts=False, path="a")
        assert await shop.call(name, mode, path="a") == "deleted a"
    assert shop.take() == (['Allow "delete" to run?'] * 4, ["a", "a"])


@each_mode
async def test_tool_that_asks_by_hand_keeps_its_questions(mode: str) -> None:
    shop = Shop()

    async def by_hand(ctx: Context) -> Any:
        answers = ctx.input_responses
        if answers is None:
            params = ElicitRequestFormParams(message="By hand?", requested_schema={"type": "object", "properties": {}})
            return InputRequiredResult(input_requests={"q": ElicitRequest(params=params)}, request_state="mine")
        shop.done.append(str(ctx.request_state))
        return "answered"

    shop.mcp.tool(by_hand)
    if mode == "auto":
        assert await shop.call("by_hand", mode) == "answered"
        assert shop.take() == (['Allow "by_hand" to run?', "By hand?"], ["mine"])


async def test_task_of_fastmcp_asks_within_the_request() -> None:
    # Other FastMCP versions, with which these tests also run, lack this package.
    tasks = pytest.importorskip("fastmcp_tasks")
    shop = Shop()
    shop.mcp.add_extension(tasks.TasksExtension())

    @shop.mcp.tool(task=True)
    async def long(path: str) -> str:
        return shop.delete(path)

    outer = FastMCP[Any]("outer")
    outer.mount(shop.mcp)
    for server in (shop.mcp, outer):
        found = await server.get_tool("long")
        assert found is not None
        assert found.task_config.mode == "forbidden"
    assert await shop.call("long", "auto", path="a") == "deleted a"
    assert shop.take() == (['Allow "long" to run?'], ["a"])
    del long


@each_mode
@pytest.mark.parametrize("kind", ["fastmcp", "mcpserver"])
async def test_link_asks_for_consent_on_another_instance(kind: str, mode: str) -> None:
    ledger, done = MemoryLedger(), list[str]()

    def instance() -> Any:
        pages = Pages(base_url=BASE, authenticate=reader, wait=5)
        options: Any = {"keys": [KEY], "principal": user_of, "pages": pages, "ledger": ledger, "consent": "destructive"}

        def delete(path: str) -> dict[str, str]:
            done.append(path)
            return {"deleted": path}

        if kind == "fastmcp":
            mcp = FastMCP[Any]("shop")
            install(mcp, **options)
            mcp.tool(delete)
            return mcp.http_app()
        server = MCPServer[Any]("shop")
        install_in_sdk(server, **options)
        server.add_tool(delete)
        return server.streamable_http_app()

    async with hosted(instance()) as url, client_of(url, mode=mode) as client:
        assert (await client.list_tools()).tools[0].output_schema is None
        asked = await client.call_tool("delete", {"path": "a"})
        assert not asked.is_error
    assert done == []
    async with hosted(instance()) as url, client_of(url, mode=mode) as client:
        browser = Browser(url, "ann")
        assert await browser.answer_all(link_in(asked), {'Allow "delete" to run?': ""}) == "Done"
        ended = await client.call_tool("continue_call", {"handle": handle_in(asked)})
    assert (ended.structured_content, done) == ({"deleted": "a"}, ["a"])


@each_mode
async def test_mounted_server_that_asks_lists_no_schema(mode: str) -> None:
    shop, outer = Shop(), FastMCP[Any]("outer")
    pages = Pages(base_url=BASE, authenticate=reader, wait=5)
    install(outer, keys=[KEY], principal=user_of, pages=pages, ledger=MemoryLedger())
    shop.mcp.tool(shop.delete)
    outer.mount(shop.mcp, namespace="n")
    async with hosted(outer.http_app()) as url, client_of(url, mode=mode) as client:
        assert (await client.list_tools()).tools[0].output_schema is None
        asked = await client.call_tool("n_delete", {"path": "a"})
        browser = Browser(url, "ann")
        assert await browser.answer_all(link_in(asked), {'Allow "delete", on server "shop", to run?': ""}) == "Done"
    assert shop.done == ["a"]


async def test_start_counts_tools_and_other_providers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "roundtrip")
    shop = Shop()
    shop.mcp.tool(shop.delete)
    shop.mcp.tool(shop.delete, name="read", annotations=READS)
    shop.mcp.tool(roundtrip.tool(confirm="Sure?")(shop.own), name="own")
    child = FastMCP[Any]("child")
    child.tool(shop.delete)
    shop.mcp.mount(child, namespace="c")
    shop.mcp.mount(create_proxy(FastMCP[Any]("other")))
    await shop.call("read", "auto", path="a")
    (line,) = [record.message for record in caplog.records if record.message.startswith("consent: ")]
    assert line == (
        "consent: on server 'shop', 3 of 4 tools ask their users before they run (2 without hints, 1 with confirm=); "
        "tools of 1 other provider are checked when a client calls them"
    )


async def test_functions_of_many_tools_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastmcp_consent, "_MAX_FUNCTIONS", 2)
    shop = Shop()
    for name in "abc":
        shop.mcp.tool(shop.delete, name=name)
    for name in "abca":
        assert await shop.call(name, "auto", path=name) == f"deleted {name}"
    assert shop.take()[1] == ["a", "b", "c", "a"]


@pytest.mark.roundtrip(eras="both")
@pytest.mark.parametrize("kind", ["server", "mcpserver", "fastmcp"])
async def test_question_does_not_consume_arguments(kind: str) -> None:
    server: Any = Server("files", keys=[KEY])
    if kind != "server":
        server = MCPServer[Any]("files") if kind == "mcpserver" else FastMCP[Any]("files")
        (install_in_sdk if kind == "mcpserver" else install)(server, keys=[KEY])
    kept: list[str] = []

    @roundtrip.tool(confirm="Keep {paths}?")
    def clean(paths: Iterable[str], more: list[Iterable[str]]) -> None:
        kept.extend([*paths, *more[0]])

    server.tool()(clean)
    call = await User(server, {re.compile("Keep"): ACCEPT}).call("clean", paths=["a"], more=[["b"]])
    assert (call.asked, kept) == (['Keep ["a"]?\n\npaths: ["a"]\nmore: [["b"]]'], ["a", "b"])
