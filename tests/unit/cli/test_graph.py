"""`roundtrip graph` finds servers by import path and by file, and its errors name the mistake."""

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from roundtrip.cli import main
from tests.kit.tables import check_each
from tests.kit.transcripts import asked, began, question, write

SHOP = """
from dataclasses import dataclass
from typing import Annotated
from mcp.server import MCPServer
from roundtrip import Resolve, Server
{neighbour}
server = Server("shop")
empty = Server("empty")
plain = MCPServer("plain")
other = 3

@dataclass
class Price:
    amount: float

def price(title: str) -> Price:
    return Price(1.0)

@server.tool()
def order(title: str, price: Annotated[Price, Resolve(price)]) -> str:
    return title
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """Make a folder with a shop the current one, and forget imports from it afterwards."""
    (tmp_path / "graph_shop.py").write_text(SHOP.format(neighbour=""), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("graph_", "roundtrip_target_")):
            del sys.modules[name]


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["graph", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_drawing_goes_to_standard_output_or_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(format: str, start: tuple[str, ...]) -> None:
        assert main(["graph", "--format", format]) == 0
        assert capsys.readouterr().out.startswith(start)
        assert main(["graph", "graph_shop:server", "--format", format, "--output", "drawing"]) == 0
        assert capsys.readouterr().out == ""
        written = (folder / "drawing").read_text(encoding="utf-8")
        assert written.startswith(start)
        assert "price" in written

    check_each([("mermaid", ("stateDiagram-v2\n", "flowchart LR\n")), ("dot", ("digraph ",))], check)
    assert main(["graph"]) == 0
    assert capsys.readouterr().out.startswith("stateDiagram-v2\n")
    assert "cannot write 'no/such/folder': No such file" in failure(capsys, "--output", "no/such/folder")
    (folder / "taken").mkdir()
    assert "cannot write 'taken': Is a directory" in failure(capsys, "--output", "taken")


def test_a_server_is_found_by_import_path_and_by_file(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drawing = "order\n    price <- price\nprice\n    title <- title (argument)\n"
    drawn: dict[str, str] = {}
    for target in ("graph_shop:server", "graph_shop.py:server", "./graph_shop.py:server"):
        for tool in ([], ["order"]):
            assert main(["graph", target, *tool, "--format", "text"]) == 0
            drawn[" ".join([target, *tool])] = capsys.readouterr().out
    assert drawn == dict.fromkeys(drawn, drawing)
    # A file may import its neighbors, also if it is known by its full path.
    (folder / "graph_neighbour.py").write_text("here = 1", encoding="utf-8")
    (folder / "graph_shop.py").write_text(SHOP.format(neighbour="import graph_neighbour"), encoding="utf-8")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert main(["graph", f"{folder / 'graph_shop.py'}:server"]) == 0


FACTORIES = """

def make() -> Server:
    return server

def of_keys(keys) -> Server:
    return server

async def later() -> Server:
    return server

def nothing() -> None: ...

def broken() -> Server:
    raise OSError("no shelf")
"""


def test_a_function_is_called_for_the_server_that_it_makes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "graph_shop.py").write_text(SHOP.format(neighbour="") + FACTORIES, encoding="utf-8")
    assert main(["graph", "graph_shop:make", "order", "--format", "text"]) == 0
    assert capsys.readouterr().out.startswith("order\n")
    for name, message in {
        "of_keys": "requires arguments",
        "later": "is an async function",
        "nothing": "returned something of type NoneType, not a server with roundtrip; choose from server",
        "broken": "failed: OSError: no shelf",
    }.items():
        assert f"'graph_shop:{name}' {message}" in failure(capsys, f"graph_shop:{name}")


def test_undrawable_target_is_rejected_with_advice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(arguments: list[str], message: str) -> None:
        assert failure(capsys, *arguments).startswith("roundtrip graph: ")
        assert message in failure(capsys, *arguments)

    check_each(
        [
            (["graph_shop"], "'graph_shop' does not name a server; write MODULE:SERVER"),
            ([":server"], "':server' does not name a server; write MODULE:SERVER"),
            (["graph_nowhere:server"], "no module named 'graph_nowhere'"),
            (["graph_shop.inner:server"], "no module named 'graph_shop.inner'"),
            (["nowhere.py:server"], "no file 'nowhere.py'; "),
            (["graph_shop:shop"], "'graph_shop' has no attribute 'shop'; choose from server, empty"),
            (
                ["graph_shop:other"],
                "'graph_shop:other' is of type int, not a server with roundtrip; choose from server",
            ),
            (
                ["graph_shop:plain"],
                "is of type MCPServer, not a server with roundtrip; import the class from roundtrip",
            ),
            (["graph_shop:empty"], "the server 'graph_shop:empty' has no tools"),
            (["graph_shop:server", "sell"], "the server 'graph_shop:server' has no tool 'sell'; its tools: order"),
        ],
        check,
    )


def test_module_failing_to_import_is_reported_with_its_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "graph_broken.py").write_text("import graph_missing", encoding="utf-8")
    for target in ("graph_broken:server", "graph_broken.py:server"):
        assert "failed: ModuleNotFoundError: No module named 'graph_missing'" in failure(capsys, target)


# With a call.


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    moves = [["begin", "resolving", 0.1], ["ask", "awaiting_input", 0.2]]
    path = tmp_path / "calls.jsonl"
    write(path, [began(), asked(1.0, question(), moves=moves)])
    return path


def test_the_way_of_a_recorded_call_is_marked(transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(format: str, marks: list[str]) -> None:
        assert main(["graph", "--call", "call", "--trace", str(transcript), "--format", format]) == 0
        drawing = capsys.readouterr().out
        assert [mark for mark in marks if mark not in drawing] == []
        main(["graph", "--format", format])
        without = capsys.readouterr().out
        assert all(drawing.count(mark) > without.count(mark) for mark in marks)

    check_each(
        [
            ("text", ["begin   -> resolving *", "ask     -> awaiting_input *", "* the call is here"]),
            ("mermaid", ["resolving --> awaiting_input: ask (visited)", "Class awaiting_input s_active"]),
            ("dot", ['resolving -> awaiting_input [label="ask", penwidth=3];', "awaiting_input [style="]),
        ],
        check,
    )


def test_call_is_marked_on_machines_and_not_on_servers(transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "x:server", "--call", "call-1", "--trace", str(transcript)]) == 2
    assert "remove MODULE:SERVER" in capsys.readouterr().err
