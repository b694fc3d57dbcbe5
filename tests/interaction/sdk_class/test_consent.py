"""Consent on `Server` and `MCPServer`: a tool that may destroy asks its user before it runs."""

import logging
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver.tools.base import Tool as SdkTool
from mcp_types import TextContent, ToolAnnotations
from pydantic import BaseModel

from roundtrip import Elicit, Resolve, Server, tool
from roundtrip.adapters import finding
from roundtrip.install import install
from roundtrip.testing import ACCEPT, DECLINE, User
from tests.kit.shops import KEY

pytestmark = [pytest.mark.anyio, pytest.mark.roundtrip(eras="both")]

READS, DESTROYS = ToolAnnotations(read_only_hint=True), ToolAnnotations(destructive_hint=True)


def where(path: str) -> Elicit[str]:
    return Elicit(f"Where to, {path}?", str)


class Files:
    """A server whose tools note what they did."""

    def __init__(self, kind: str, consent: Any = "destructive", **options: Any) -> None:
        self.done: list[str] = []
        self.server: Any
        if kind == "server":
            self.server = Server("files", keys=[KEY], consent=consent, **options)
        else:
            self.server = MCPServer[Any]("files")
            self.server.add_tool(self.early)
            install(self.server, keys=[KEY], consent=consent, **options)
        add: Callable[..., None] = self.server.add_tool
        if kind == "server":
            add(self.early)
        add(self.delete)
        add(self.read, annotations=READS)
        add(self.burn, annotations=DESTROYS)
        add(self.move)
        add(tool(consent=False)(self.touch))
        add(tool(confirm="Really {path}?")(self.own))

    def early(self, path: str) -> str:
        return self._do("early", path)

    async def delete(self, path: str, force: bool = False) -> str:
        return self._do("delete", path)

    def read(self, path: str) -> str:
        return self._do("read", path)

    def burn(self, path: str) -> str:
        return self._do("burn", path)

    def move(self, path: str, to: Annotated[str, Resolve(where)]) -> str:
        return self._do("move", f"{path} to {to}")

    def touch(self, path: str) -> str:
        return self._do("touch", path)

    def erase(self, path: str) -> str:
        return self._do("erase", path)

    def own(self, path: str) -> str:
        return self._do("own", path)

    def _do(self, what: str, path: str) -> str:
        self.done.append(f"{what} {path}")
        return "done"


def yes(question: Any) -> bool:
    return question.name is not None and question.name.startswith("confirm:")


each_kind = pytest.mark.parametrize("kind", ["server", "mcpserver"])
TOOLS = ("early", "delete", "read", "burn", "move", "touch", "own")


async def asked_by(files: Files, answer: Any, **options: Any) -> list[str]:
    """Call each tool, and return the first question of each tool that asks."""
    answers = {yes: answer, "where": "b"}
    first: list[str] = []
    for name in TOOLS:
        call = await User(files.server, answers, allow_unused=True, allow_error=True, **options).call(name, path="a")
        first += call.asked[:1]
    return first


@each_kind
async def test_tools_that_may_destroy_run_after_consent_only(kind: str) -> None:
    files = Files(kind)
    asked = ['Allow "early" to run?\n\npath: "a"', 'Allow "delete" to run?\n\npath: "a"\nforce: False']
    asked += [f'Allow "{name}" to run?\n\npath: "a"' for name in ("burn", "move")]
    asked.append('Really "a"?\n\npath: "a"')
    assert await asked_by(files, DECLINE) == asked
    assert files.done == ["read a", "touch a"]
    files.done.clear()
    assert await asked_by(files, ACCEPT) == asked
    assert files.done == ["early a", "delete a", "read a", "burn a", "move a to b", "touch a", "own a"]


@each_kind
async def test_client_that_cannot_be_asked_gets_an_error(kind: str) -> None:
    files = Files(kind)
    assert await asked_by(files, ACCEPT, client="no-elicitation") == []
    assert files.done == ["read a", "touch a"]


@each_kind
async def test_marked_tools_only(kind: str) -> None:
    files = Files(kind, "marked")
    asked = await asked_by(files, DECLINE)
    assert asked == ['Allow "burn" to run?\n\npath: "a"', "Where to, a?", 'Really "a"?\n\npath: "a"']
    assert files.done == ["early a", "delete a", "read a", "move a to b", "touch a"]


@each_kind
async def test_tool_can_ask_although_the_server_does_not(kind: str) -> None:
    files = Files(kind, None)
    files.server.add_tool(tool("asks", consent=True)(files.erase))
    call = await User(files.server, {"confirm:asks": DECLINE}).call("asks", path="a")
    assert (call.asked, files.done) == (['Allow "asks" to run?\n\npath: "a"'], [])


@each_kind
async def test_start_tells_how_many_tools_ask(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "roundtrip")
    await User(Files(kind).server).call("read", path="a")
    (line,) = [record.message for record in caplog.records if record.message.startswith("consent: ")]
    assert line == (
        "consent: on server 'files', 5 of 7 tools ask their users before they run (3 without hints, 1 with "
        "destructiveHint=True, 1 with confirm=)"
    )


class Logged(SdkTool):
    """Tool object with a `run` of its own."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        result = await super().run(arguments, context, convert_result)
        result.content.append(TextContent(text=type(context).__module__))
        return result


async def test_tools_of_the_sdk_run_themselves() -> None:
    server = MCPServer[Any]("files")
    install(server, keys=[KEY], consent="destructive")

    async def write(model: BaseModel, ctx: SdkContext[Any, Any]) -> str:
        return type(ctx).__module__

    finding.put_tool(server, Logged.from_function(write))
    call = await User(server, {yes: ACCEPT}).call("write", model={})
    result: Any = call.result
    assert [block.text for block in result.content] == ["mcp.server.mcpserver.context"] * 2


async def test_tool_that_arrives_during_its_call_asks() -> None:
    done: list[str] = []

    class Late(MCPServer[Any]):
        async def call_tool(self, name: str, *given: Any, **named: Any) -> Any:
            finding.put_tool(self, SdkTool.from_function(done.append, name=name))
            return await super().call_tool(name, *given, **named)

    server = Late("files")
    install(server, keys=[KEY], consent="destructive")
    call = await User(server, {yes: DECLINE}).call("delete", object="a")
    assert (len(call.asked), done) == (1, [])


async def test_invalid_arguments_are_rejected_before_anybody_is_asked() -> None:
    files = Files("mcpserver")
    rejected = await User(files.server, {yes: ACCEPT}, allow_unused=True).call("delete", path=["a"])
    assert (rejected.asked, files.done) == ([], [])


@each_kind
async def test_question_shows_only_arguments_that_the_tool_takes(kind: str) -> None:
    files = Files(kind)

    def move(path: str, copy: bool) -> str:
        return f"{path} {copy}"

    files.server.add_tool(move, "move_all")
    sent = {"path": "a", "copy": False, "dry_run": True, "field_copy": True}
    call = await User(files.server, {yes: ACCEPT}).call("move_all", sent)
    assert (call.asked, call.text) == (['Allow "move_all" to run?\n\npath: "a"\ncopy: False'], "a False")


async def test_question_cannot_be_rewritten_by_arguments() -> None:
    server = Server("files", keys=[KEY], consent="destructive")

    @server.tool(name='x" to read?\n{path}')
    def write(path: str) -> str:
        return path

    long = 'a"\n\nsafe: true\u202e' + "b" * 3000
    call = await User(server, {yes: DECLINE}).call('x" to read?\n{path}', path=long)
    head, _, shown = call.asked[0].partition("\n\n")
    assert head == 'Allow "x\\" to read?\\n{path}" to run?'
    assert shown.startswith('path: "a\\"\\n\\nsafe: true\\u202ebbb')
    assert shown.endswith('bbb"... (and 1015 more characters)')
    assert "\n" not in shown
    del write


async def test_low_level_server_rejects_consent() -> None:
    with pytest.raises(TypeError, match=r"must be called without consent=.*may run tools that roundtrip does not see"):
        install(LowLevelServer[Any]("low"), consent="destructive")
