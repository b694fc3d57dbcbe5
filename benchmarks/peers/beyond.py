"""Rows about features around a call: confirmations, tasks, approvals, pages, commands, tests, and FastMCP's own."""

import pkgutil
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import httpx2
import mcp.server.mcpserver
from fastmcp import Context as FastContext
from fastmcp import FastMCP
from fastmcp.cli.cli import app as fastmcp_app
from fastmcp.server import create_proxy
from fastmcp.server.auth import providers
from fastmcp_tasks import TasksExtension
from mcp.cli.cli import app as sdk_app
from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, InputRequiredResult
from pydantic import BaseModel
from starlette.requests import Request

import roundtrip
from benchmarks.ledgers import own_redis
from benchmarks.peers.clients import ANN, EVE, Person, call_text, connect, short, text_of
from benchmarks.peers.row import Row, Shown, lacks, on, takes
from benchmarks.peers.servers import answer_to, asking, fast, ours, theirs
from benchmarks.peers.tasks import (
    NO_REDIS,
    answered,
    begin,
    restarted,
    tasks_client,
    with_fastmcp_task,
    with_task,
)
from roundtrip import Approvals, Approve, Pages, Server
from roundtrip.cli import make_parser
from roundtrip.fastmcp import install
from roundtrip.testing import Approver, Era, User
from roundtrip.testing.networks.fleet import acting_as

__all__ = ["ROWS"]


class Named(BaseModel):
    name: str


def ask_name() -> Elicit[Named]:
    return Elicit("Which name?", Named)


async def confirm_ours() -> str:
    server, person = ours(), Person({})

    @server.tool(confirm="Delete {path}?")
    async def work(path: str) -> str:
        return "done"

    text = await call_text(server, arguments={"path": "a.txt"}, person=person)
    return f"`confirm=`: asks `{person.asked[0].splitlines()[0]}`" if text == "done" else short(text)


async def first_question(server: Any, tool: str, **arguments: Any) -> str:
    """Call a tool whose user declines, and return the first line that the user sees."""
    asked: list[str] = []

    async def decline(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message.splitlines()[0])
        return ElicitResult(action="decline")

    async with connect(server, elicitation_callback=decline) as client:
        await client.call_tool(tool, arguments)
    return f"asks `{asked[0]}`" if asked else "asks nothing"


async def consent_ours() -> str:
    server = ours(consent="destructive")

    @server.tool()
    async def work(path: str) -> str:
        return "done"

    return f"`consent=`: {await first_question(server, 'work', path='a.txt')}"


async def consent_to_proxied() -> str:
    """Proxy a plain server, and make its tool ask."""
    backend, front = fast(), FastMCP[Any]("front")

    @backend.tool
    async def work(path: str) -> str:
        return "done"

    install(front, keys=["k" * 32], consent="destructive")
    front.mount(create_proxy(backend))
    return f"`install(consent=)` on FastMCP: {await first_question(front, 'work', path='a.txt')}"


async def openapi_ours() -> str:
    async with httpx2.AsyncClient(base_url="https://films.example") as http:
        server = FastMCP.from_openapi(_API, client=http)
        install(server, keys=["k" * 32], consent="destructive")
        asks = await first_question(server, "delete_films")
    return f"{await members(Server, 'openapi')()}; `install(consent=)` on FastMCP: {asks}"


async def as_task(server: Any) -> str:
    async with tasks_client(server) as client:
        text = await answered(client, await begin(client))
    return "asks, and continues" if text == "Ada" else short(text)


async def task_ours() -> str:
    return f"`ctx.ask` {await as_task(with_task())}"


async def task_fastmcp() -> str:
    server = fast()
    server.add_extension(TasksExtension(url="memory://"))

    @server.tool(task=True)
    async def work(ctx: FastContext) -> str:
        answer = await ctx.elicit("Which name?", Named)
        return answer.data.name if answer.action == "accept" else "not given"

    async with tasks_client(server) as client:
        imperative = text_of(await client.call_tool("work", {}))
    ends = "fails" if imperative.startswith("error") else "works"
    return f"a guard {await as_task(with_fastmcp_task('memory://'))}; `ctx.elicit` {ends}"


async def task_of_another_user(server: Any) -> str:
    """Answer a task, by its id, as somebody who did not begin it."""
    with acting_as(ANN):
        async with tasks_client(server) as client:
            task_id = await begin(client)
            with acting_as(EVE):
                try:
                    text = await answered(client, task_id)
                except MCPError:
                    return "the task is unknown"
    return "she answers, and reads the result" if text == "Ada" else short(text)


async def with_invalid_answer(server: Any) -> str:
    """Answer a task's question with something that its form does not allow."""
    async with tasks_client(server) as client:
        text = await answered(client, await begin(client), 7)
    return {"asked": "asks again", "7": "continues with it"}.get(text, short(text))


async def task_answer_fastmcp() -> str:
    return f"a guard {await with_invalid_answer(with_fastmcp_task('memory://'))}"


async def restart_ours() -> str:
    with TemporaryDirectory() as folder:
        return f"SQLite: {restarted('roundtrip', str(Path(folder) / 'tasks.db'))}"


async def restart_fastmcp() -> str:
    in_memory = restarted("fastmcp", "memory://")
    with TemporaryDirectory() as folder, own_redis(Path(folder)) as url:
        in_redis = NO_REDIS if url is None else restarted("fastmcp", f"{url}/0")
    return f"memory, the default: {in_memory}; Redis: {in_redis}"


async def reader(request: Request) -> str | None:
    return request.cookies.get("user")


def caller(ctx: object) -> str:
    return "ann"


_ANN: Final = {"cookie": "user=ann"}
_FAY: Final = {"cookie": "user=fay"}


def with_pages(**options: Any) -> Server[Any]:
    return ours(principal=caller, pages=Pages(base_url="https://shop.example", authenticate=reader), **options)


async def approval_ours() -> str:
    server = with_pages(approvals=Approvals(groups={"fay": ["finance"]}))

    @server.tool(confirm=Approve("Refund {amount}?", by="finance"))
    async def work(amount: int) -> str:
        return "done"

    fay = Approver({"finance": "approve"}, headers=_FAY)
    text = (await User(server, approver=fay, era=Era.RETRY, page_headers=_ANN).call("work", amount=5)).text
    return f"`confirm=Approve(…)`: {fay.decided[0]['who'] if text == 'done' else short(text)} approves, the body runs"


async def unasked(server: Any) -> str:
    """Call with a client that declares no capability."""
    async with connect(server) as client:
        try:
            return f"a result: {short(text_of(await client.call_tool('work', {})))}"
        except MCPError as error:
            return f"error {error.error.code}"


def with_resolver(server: Any) -> Any:
    @server.tool()
    async def work(named: Annotated[Named, Resolve(ask_name)]) -> str:
        return named.name

    return server


async def page_ours() -> str:
    plain = await unasked(with_resolver(ours()))
    user = User(
        with_resolver(with_pages()),
        {"ask_name": {"name": "Ada"}},
        client="no-elicitation",
        era=Era.RETRY,
        page_headers=_ANN,
    )
    text = (await user.call("work")).text
    return f"{plain}; `pages=`: {'the user answers on a page' if text == 'Ada' else short(text)}"


async def page_sdk() -> str:
    return await unasked(with_resolver(theirs()))


async def page_fastmcp() -> str:
    server = fast()

    @server.tool
    async def work(ctx: FastContext) -> str | InputRequiredResult:
        return answer_to(ctx, "name") or asking("name", "Which name?")

    return await unasked(server)


_WANTED: Final = ("trace", "check", "audit")


def of_calls(commands: list[str]) -> str:
    found = [f"`{name}`" for name in _WANTED if name in commands]
    others = ", ".join(f"`{name}`" for name in sorted(commands))
    return ", ".join(found) if found else f"none; it has {others}"


async def commands_ours() -> str:
    return of_calls([name for name in _WANTED if name in make_parser().format_help().split()])


async def commands_sdk() -> str:
    commands = sdk_app.registered_commands
    return of_calls([one.name or getattr(one.callback, "__name__", "") for one in commands])


async def commands_fastmcp() -> str:
    return of_calls([name for name in fastmcp_app if not name.startswith("-")])


def plugin_of(package: str) -> str:
    found = [one for one in entry_points(group="pytest11") if one.value.partition(".")[0] == package]
    return "a pytest plugin" if found else "no pytest plugin"


async def testing_ours() -> str:
    call = await User(with_resolver(ours()), {"ask_name": {"name": "Ada"}}, era=Era.RETRY).call("work")
    return f"`User(server, answers)` in memory: {call.text}; {plugin_of('roundtrip')}"


async def testing_sdk() -> str:
    async with Client(with_resolver(theirs()), elicitation_callback=Person({"name": "Ada"})) as client:
        text = text_of(await client.call_tool("work", {}))
    return f"`Client(server)` in memory: {text}; {plugin_of('mcp')}"


async def testing_fastmcp() -> str:
    from fastmcp import Client as FastClient

    server = fast()

    @server.tool
    async def work() -> str:
        return "Ada"

    async with FastClient(server) as client:
        result = await client.call_tool("work", {})
    return f"`Client(server)` in memory: {result.data}; {plugin_of('fastmcp')}"


async def proxied(backend: Any) -> str:
    person = Person({"name": "Ada"})
    text = await call_text(create_proxy(backend), person=person)
    return "a tool asks through it" if text == "Ada" and person.asked else short(text)


async def proxy_ours() -> str:
    backend = FastMCP[Any]("peer")
    install(backend, keys=["k" * 32])
    with_resolver(backend)
    return f"{await members(roundtrip, 'proxy')()}; `install` on FastMCP: {await proxied(backend)}"


async def proxy_fastmcp() -> str:
    server = fast()

    @server.tool
    async def work(ctx: FastContext) -> str | InputRequiredResult:
        return answer_to(ctx, "name") or asking("name", "Which name?")

    return f"`create_proxy`: {await proxied(server)}"


_API: Final = {
    "openapi": "3.1.0",
    "info": {"title": "films", "version": "1"},
    "paths": {"/films": {"delete": {"operationId": "delete_films", "responses": {"204": {"description": "gone"}}}}},
}


def members(module: Any, word: str) -> Shown:
    """Return a function that shows the public names that contain a word."""

    async def shown() -> str:
        found = sorted(name for name in dir(module) if word in name.lower() and not name.startswith("_"))
        return ", ".join(f"`{name}`" for name in found) if found else "none"

    return shown


async def openapi_fastmcp() -> str:
    async with httpx2.AsyncClient(base_url="https://films.example") as http:
        server = FastMCP.from_openapi(_API, client=http)
        async with connect(server) as client:
            tools = (await client.list_tools()).tools
    return f"`from_openapi`: lists {len(tools)} tool of an API with one operation"


async def mount_ours() -> str:
    child, parent = FastMCP[Any]("child"), FastMCP[Any]("parent")
    for server in (child, parent):
        install(server, keys=["k" * 32])
    parent.mount(with_resolver(child), namespace="child")
    person = Person({"name": "Ada"})
    text = await call_text(parent, "child_work", person=person)
    asked = "a tool asks in it" if text == "Ada" and person.asked else short(text)
    return f"{await members(Server, 'mount')()}; `install` on FastMCP: {asked}"


async def mount_fastmcp() -> str:
    child, parent = fast(), fast()

    @child.tool
    async def work() -> str:
        return "done"

    parent.mount(child, namespace="child")
    return f"`mount`: the parent's `child_work` returns `{await call_text(parent, 'child_work')}`"


async def auth_fastmcp() -> str:
    modules = sorted(one.name for one in pkgutil.iter_modules(providers.__path__))
    return f"`auth=`, with {len(modules)} modules in `{providers.__name__}`"


ROWS: Final = (
    Row(
        name="confirm",
        feature="An option asks before the body runs",
        test="tests/interaction/bodies/test_gates.py::test_declined_call_ends_before_anything_runs",
        roundtrip=confirm_ours,
        sdk=lacks(MCPServer.tool, "confirm"),
        fastmcp=lacks(FastMCP.tool, "confirm"),
    ),
    Row(
        name="consent",
        feature="An option makes all tools that may destroy something ask first",
        test="tests/interaction/sdk_class/test_consent.py::test_tools_that_may_destroy_run_after_consent_only",
        roundtrip=consent_ours,
        sdk=lacks(MCPServer.__init__, "consent"),
        fastmcp=lacks(FastMCP.__init__, "consent"),
    ),
    Row(
        name="approval",
        feature="Another person must approve the call",
        test="tests/interaction/pages/test_approvals.py::test_page_of_the_caller_tells_the_decision_and_its_reason",
        roundtrip=approval_ours,
        sdk=lacks(MCPServer.__init__, "approvals"),
        fastmcp=lacks(FastMCP.__init__, "approvals"),
    ),
    Row(
        name="page",
        feature="The client declares that it cannot be asked",
        test="tests/interaction/pages/test_question_pages.py::test_client_that_cannot_be_asked_gets_a_link",
        roundtrip=page_ours,
        sdk=page_sdk,
        fastmcp=page_fastmcp,
    ),
    Row(
        name="task",
        feature="A call that runs as a task asks",
        test="tests/interaction/tasks/adapters/test_fastmcp_client.py::test_client_of_fastmcp_drives_a_task_that_asks",
        roundtrip=task_ours,
        sdk=lacks(MCPServer.tool, "task"),
        fastmcp=task_fastmcp,
    ),
    Row(
        name="task-answer",
        feature="The answer to a task's question breaks the rules of the form",
        test="tests/interaction/tasks/test_methods.py::test_invalid_answer_is_asked_again_under_a_fresh_key",
        roundtrip=on(with_task, with_invalid_answer),
        sdk=lacks(MCPServer.tool, "task"),
        fastmcp=task_answer_fastmcp,
    ),
    Row(
        name="task-user",
        feature="Another user answers a task, by its id",
        test="tests/interaction/tasks/test_methods.py::test_unknown_and_foreign_tasks_get_one_answer",
        roundtrip=on(with_task, task_of_another_user),
        sdk=lacks(MCPServer.tool, "task"),
        fastmcp=on(partial(with_fastmcp_task, "memory://"), task_of_another_user),
    ),
    Row(
        name="restart",
        feature="The process of a waiting task ends, and another one starts",
        test="tests/interaction/tasks/processes/test_processes.py::test_killed_worker_is_followed_behind_its_stored_steps",
        roundtrip=restart_ours,
        sdk=lacks(MCPServer.tool, "task"),
        fastmcp=restart_fastmcp,
    ),
    Row(
        name="commands",
        feature="Commands that show recorded calls, check them against new code, and attack a server",
        test="tests/interaction/trace/test_check.py::test_unchanged_code_is_compatible_without_running_bodies_or_recording",
        roundtrip=commands_ours,
        sdk=commands_sdk,
        fastmcp=commands_fastmcp,
    ),
    Row(
        name="testing",
        feature="Test a tool without a network",
        test="tests/interaction/protocol/test_eras.py::test_a_call_of_two_rounds_walks_these_states",
        roundtrip=testing_ours,
        sdk=testing_sdk,
        fastmcp=testing_fastmcp,
    ),
    Row(
        name="proxy",
        feature="Serve the tools of another server",
        test="tests/interaction/adapters/test_fastmcp.py::test_proxied_tool_asks",
        roundtrip=proxy_ours,
        sdk=members(mcp.server.mcpserver, "proxy"),
        fastmcp=proxy_fastmcp,
    ),
    Row(
        name="proxy-consent",
        feature="The tools of another server ask first",
        test="tests/interaction/adapters/test_consent.py::test_plain_tool_never_runs_without_consent",
        roundtrip=consent_to_proxied,
        sdk=members(mcp.server.mcpserver, "proxy"),
        fastmcp=lacks(create_proxy, "consent", "confirm"),
    ),
    Row(
        name="openapi",
        feature="Make tools of an OpenAPI document",
        test="tests/interaction/adapters/test_consent.py::test_plain_tool_never_runs_without_consent",
        roundtrip=openapi_ours,
        sdk=members(MCPServer, "openapi"),
        fastmcp=openapi_fastmcp,
    ),
    Row(
        name="mount",
        feature="Mount a server inside of another one",
        test="tests/interaction/adapters/test_fastmcp.py::test_mounted_tool_asks_by_keys_of_parent",
        roundtrip=mount_ours,
        sdk=members(MCPServer, "mount"),
        fastmcp=mount_fastmcp,
    ),
    Row(
        name="auth",
        feature="Authentication",
        test="tests/interaction/protocol/test_principals.py::test_token_works_only_for_its_user",
        roundtrip=takes(Server.__init__, "token_verifier", "auth_server_provider"),
        sdk=takes(MCPServer.__init__, "token_verifier", "auth_server_provider"),
        fastmcp=auth_fastmcp,
    ),
)
