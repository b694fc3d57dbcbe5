"""Commands of roundtrip on servers of other classes."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import FastMCP
from mcp.server import MCPServer

import roundtrip
from roundtrip.cli import main
from roundtrip.cli.running.loading import load_any_server, load_attached
from roundtrip.fastmcp import install as install_in_fastmcp
from roundtrip.install import install
from roundtrip.testing import Unanswered, User

IMPORTS = {
    "fastmcp": "from fastmcp import FastMCP as Host\nfrom roundtrip.fastmcp import install\n",
    "sdk": "from mcp.server import MCPServer as Host\nfrom roundtrip.install import install\n",
}
CINEMA = """
from pathlib import Path
from typing import Annotated
from pydantic import BaseModel
from roundtrip import Context, Elicit, Pages, Recorder, Resolve
from roundtrip.ledger import SqliteLedger

class Seats(BaseModel):
    seats: int

async def ask_seats(film: str) -> Elicit[Seats]:
    return Elicit(f"How many seats for {film}?", Seats)

async def reader(request):
    return "ann"

here = Path(__file__).parent
server = Host("cinema")
install(
    server, keys=["7f" * 32], ledger=SqliteLedger(str(here / "calls.db")), principal=lambda ctx: "ann",
    pages=Pages(base_url="https://shop.example", authenticate=reader, wait=0.1),
    trace=Recorder(here / "calls.jsonl", reveal="all"),
)

@server.tool()
async def book(film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> int:
    return seats.seats

@server.tool()
async def reserve(ctx: Context) -> str:
    return f"{await ctx.ask('seats', 'How many?', int)} seats"
"""


@pytest.fixture(params=IMPORTS)
def module(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file with a server, and record a call of it to `calls.jsonl` beside it."""
    # Loading a file adds its folder.
    monkeypatch.setattr("sys.path", [*sys.path])
    path = tmp_path / "cinema.py"
    path.write_text(IMPORTS[request.param] + CINEMA)
    host = getattr(load_attached(f"{path}:server"), "host")  # noqa: B009 - a roundtrip.Server has none

    async def call() -> None:
        assert (await User(host, {"ask_seats": {"seats": 3}}).call("book", film="Dune")).value == 3

    anyio.run(call)
    return path


def test_commands_read_a_server_of_another_class(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str, code: int) -> str:
        assert main([*words]) == code
        return "".join(capsys.readouterr())

    server, transcript = f"{module}:server", str(module.parent / "calls.jsonl")
    assert "compatible" in said("check", server, transcript, code=0)
    assert "ask_seats" in said("graph", server, "book", "--format", "text", code=0)
    module.write_text(module.read_text().replace("How many seats for", "Seats for"))
    assert "asks 1 again" in said("check", server, transcript, code=1)


def test_audit_attacks_it_over_http(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = 'book={"film": "Dune"}'
    code = main(["audit", f"{module}:server", "--tool", tool, "--body-size", "1"])
    said = capsys.readouterr()
    assert code == 0, said
    assert "passed" in said.out
    assert "failed  MUST" not in said.out


def test_calls_acts_on_stored_calls(
    module: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROUNDTRIP_OPERATOR_LOG", str(module.parent / "operators.jsonl"))
    target = f"{module}:server"
    user = User(load_any_server(target), client="no-elicitation", page_headers={"x-user": "ann"})
    with pytest.raises(Unanswered, match="How many"):
        anyio.run(user.call, "reserve")
    assert main(["calls", "stored", "--server", target, "--json"]) == 0
    call = json.loads(capsys.readouterr().out)[0]["call_id"]
    assert main(["calls", "remind", call, "--server", target]) == 1
    assert main(["calls", "answer", call, "seats", "many", "--server", target, "--test-user"]) == 1
    assert main(["calls", "answer", call, "seats", "3", "--server", target, "--test-user"]) == 0
    capsys.readouterr()
    assert main(["calls", "show", call, "--server", target, "--json", "--reveal"]) == 0
    assert json.loads(capsys.readouterr().out)["stored"]["answers"] == {
        "seats": {"action": "accept", "content": {"value": 3}}
    }
    assert main(["calls", "expire", call, "--server", target]) == 0
    capsys.readouterr()
    assert main(["calls", "show", call, "--server", target, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stored"]["state"] == "failed"
    lines = [json.loads(line) for line in (module.parent / "operators.jsonl").read_text().splitlines()]
    assert [(line["action"], line["tool"], line["outcome"]) for line in lines] == [
        ("remind", "reserve", "rejected"),
        ("answer", "reserve", "rejected"),
        ("answer", "reserve", "done"),
        ("expire", "reserve", "done"),
    ]


MOUNTING = """
from fastmcp import FastMCP
from roundtrip import Context
from roundtrip.fastmcp import install

child = FastMCP("child")
install(child)

@child.tool
async def book(film: str, ctx: Context) -> str:
    return f"{film}, {await ctx.ask('seats', 'How many?', int)}"

server = FastMCP("cinema")
install(server, keys=["7f" * 32])
server.mount(child, namespace="below")
server.tool(book)
"""


def test_mounted_tool_is_recorded_by_the_name_that_clients_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = "below_book"
    trace = str(tmp_path / "calls.jsonl")
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setenv("ROUNDTRIP_TRACE", trace)
    monkeypatch.setenv("ROUNDTRIP_TRACE_REVEAL", "all")
    (tmp_path / "mounting.py").write_text(MOUNTING)
    server = load_any_server(f"{tmp_path / 'mounting.py'}:server")
    assert anyio.run(User(server, {"seats": 3}).call, tool, {"film": "Dune"}).value == "Dune, 3"
    monkeypatch.delenv("ROUNDTRIP_TRACE")
    assert main(["trace", "ls", trace, "--tool", tool]) == 0
    assert "completed" in capsys.readouterr().out
    assert main(["check", f"{tmp_path / 'mounting.py'}:server", trace]) == 0
    assert "1 compatible, 0 asking again, 0 diverging" in capsys.readouterr().out
    assert main(["trace", "to-test", "last", "--server", "mounting:server", trace]) == 0
    assert f'call("{tool}"' in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["roundtrip", "fastmcp", "mcpserver"])
@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "asks"])
def test_options_above_the_decorator_that_registers_are_an_error(kind: str, is_plain: bool) -> None:
    """They would do nothing, and a dangerous tool would run unconfirmed."""

    async def delete(path: str) -> str:
        return path

    async def choose(ctx: roundtrip.Context) -> str:
        return str(ctx)

    fn: Any = delete if is_plain else choose
    servers = {"roundtrip": roundtrip.Server[Any], "fastmcp": FastMCP[Any], "mcpserver": MCPServer[Any]}
    server: Any = servers[kind]("shop")
    if kind != "roundtrip":
        (install_in_fastmcp if kind == "fastmcp" else install)(server)
    server.add_tool(fn) if kind == "mcpserver" else server.tool(fn)
    with pytest.raises(
        roundtrip.InvalidSignature, match=r"put @roundtrip\.tool below the decorator that registers the function"
    ):
        roundtrip.tool(confirm="Sure?")(fn)


FORGOTTEN = {
    "fastmcp": ("tool 'pay' asks with roundtrip", "call install() before"),
    "sdk": ("tool 'pay' uses markers or options", "install(server)"),
}


@pytest.mark.parametrize(
    ("kind", "command"), [("fastmcp", ["call", "pay"]), ("sdk", ["serve"]), ("fastmcp", ["serve", "--stdio"])]
)
def test_server_whose_install_was_forgotten_is_rejected(
    kind: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its options would do nothing, and clients could set what its resolvers return."""
    file = tmp_path / f"forgotten_{kind}.py"
    options = "\n\n@server.tool()\n@tool(confirm='Sure?')\ndef pay(euros: int) -> str:\n    return 'paid'\n"
    file.write_text(f"{IMPORTS[kind]}from roundtrip import tool\n\nserver = Host('shop'){options}")
    words, rest = command[:1], command[1:]
    assert main([*words, str(file), *rest]) == 2
    told = capsys.readouterr().err
    assert [text for text in FORGOTTEN[kind] if text not in told] == []
