"""`roundtrip call` runs a server that is named by its module or file in its own process."""

import json
import shlex
import sys
from pathlib import Path
from typing import Final

import pytest

if sys.platform == "win32":
    pytest.skip("the processes are forked", allow_module_level=True)

from tests.interaction.calls.sessions import person, script

CINEMA: Final = '''\
from contextlib import asynccontextmanager
from roundtrip import Context, Server

print("loaded")

@asynccontextmanager
async def lifespan(server):
    print("opened")
    yield {"screen": 7}
    print("closed")

server = Server("cinema", lifespan=lifespan)

@server.tool
async def book(film: str, ctx: Context) -> str:
    """Book a seat."""
    print("booking")
    screen = ctx.request_context.lifespan_context["screen"]
    row = await ctx.ask("row", f"Which row for {film}?", str)
    return f"{film}, row {row}, screen {screen}"

@server.tool
def crash() -> str:
    raise OSError("no screen")

@server.tool(task=True)
async def later(ctx: Context) -> str:
    return await ctx.ask("seat", "Which seat?", str)
'''


@pytest.fixture
def cinema(tmp_path: Path) -> str:
    file = tmp_path / "named_cinema.py"
    file.write_text(CINEMA, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(("era", "name"), [("retry", ""), ("live", ":server"), ("auto", "")])
def test_file_answers_on_standard_output_and_prints_elsewhere(cinema: str, era: str, name: str) -> None:
    answers = json.dumps({"row": {"value": "back"}})
    ended = script(cinema + name, "book", "film=Mirror", "--answers", "-", "--era", era, stdin=answers)
    assert (ended.code, ended.out) == (0, "Mirror, row back, screen 7\n")
    # A body runs again from its top on each leg of the retry era.
    legs = 1 if era == "live" else 2
    assert ended.told.split() == ["loaded", "opened", *["booking"] * legs, "closed"]


def test_failure_of_a_body_is_shown_once(cinema: str) -> None:
    ended = script(cinema, "crash")
    assert "no screen" in ended.out
    # Its traceback, without the SDK's wrapper and its columns.
    assert ended.told.count("Traceback") == ended.told.count("OSError: no screen") == 1


def test_person_answers_a_server_in_the_same_process(cinema: str) -> None:
    with person(cinema, "book", "film=Mirror") as at:
        at.wait_for("Which row for Mirror?")
        at.reply(":cancel cancels)", "front")
        ended = at.end()
    # The only field of a form needs no name.
    assert "Value" not in ended.told
    assert (ended.code, ended.out) == (0, "Mirror, row front, screen 7\n")


def test_call_that_becomes_a_task_ends_in_the_same_process(cinema: str) -> None:
    ended = script(cinema, "later", "--answers", "-", stdin='{"seat": {"value": "7F"}}')
    assert (ended.code, ended.out) == (0, "7F\n")


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("server = 1\n", [], "has no server at module level"),
        ("1 / 0\n", [], "failed: ZeroDivisionError: division by zero\n  File "),
        (CINEMA, ["--header", "Name: value"], "--header needs an HTTP server, got a server in this process"),
    ],
)
def test_unusable_name_is_wrong_usage(tmp_path: Path, text: str, arguments: list[str], message: str) -> None:
    file = tmp_path / "wrong_shop.py"
    file.write_text(text, encoding="utf-8")
    ended = script(str(file), *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.told
    assert "Traceback" not in ended.told


OTHERS: Final = {
    "sdk": """\
from mcp.server import MCPServer
mcp = MCPServer("other")

@mcp.tool()
def hi() -> str:
    return "hi"
""",
    "fastmcp": """\
from fastmcp import FastMCP
mcp = FastMCP("other")

@mcp.tool
def hi() -> str:
    return "hi"
""",
    "lowlevel": """\
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

async def listed(context, params):
    return ListToolsResult(tools=[Tool(name="hi", input_schema={"type": "object"})])

async def called(context, params):
    return CallToolResult(content=[TextContent(type="text", text="hi")])

low = Server("other", on_list_tools=listed, on_call_tool=called)
""",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_servers_of_other_classes_are_called_and_serve_stdio(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "other_shop.py"
    file.write_text(OTHERS[kind], encoding="utf-8")
    stdio = shlex.join([sys.executable, "-m", "roundtrip", "serve", str(file), "--stdio"])
    for named in (stdio, str(file)):
        ended = script(named, "hi", "--json")
        assert ended.code == 0, ended.told
        assert json.loads(ended.out)["content"][0]["text"] == "hi"
