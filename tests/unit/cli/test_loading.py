"""The server of a command line is found in files and modules, and mistakes are explained."""

import importlib
import re
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.server import MCPServer

from roundtrip.cli import main
from roundtrip.cli.running.loading import load_any_server, load_attached, load_module, names_server
from tests.kit.tables import check_each
from tests.unit.cli.targets import complaint, written

SERVER: Final = "from roundtrip import Server\nserver = Server('cinema')\n"
_LOADERS: Final = (load_attached, load_any_server)


def test_only_server_of_a_file_needs_no_name(folder: Path) -> None:
    (folder / "my shop").mkdir()

    def check(load: Any) -> None:
        file = written(folder, SERVER + "same = server\n")
        spaced = written(folder, SERVER, "my shop/target_shop.py")
        for target in (file, str(folder / file), f"./{file}:server", spaced):
            assert names_server(target)
            assert load(target).name == "cinema"

    check_each(_LOADERS, check)


def test_import_of_a_loaded_file_is_the_same_module(folder: Path) -> None:
    for name in ("target_own", "json", "target_own"):
        loaded = load_any_server(written(folder, SERVER, f"{name}.py"))
        assert load_module(f"{name}.py", reuses=True).server is loaded
        # A file does not replace an installed module that has its name.
        assert (getattr(importlib.import_module(name), "server", None) is loaded) == (name != "json")


MAKERS: Final = (
    "from typing import Any\nfrom roundtrip import Server\n"
    "def make(keys: list[str]) -> Server[Any]: ...\n"
    "def plain() -> 'Server': ...\n"
    "def other() -> int: ...\n"
    "def unknown() -> 'Nothing': ...\n"
)


def test_file_without_one_server_is_told_what_to_name(folder: Path) -> None:
    def check(load: Any) -> None:
        file = written(folder, SERVER + "other = Server('other')\n")
        assert complaint(load, file) == (
            f"{file!r} has 2 servers, server, other; name one of them: {file}:server or {file}:other"
        )
        written(folder, MAKERS)
        assert complaint(load, file).endswith(f"name the function: {file}:make or {file}:plain")
        said = complaint(load, written(folder, "number = 1\n"))
        assert "has no server at module level; add server = Server('target_shop')" in said
        assert 'give its command: "python target_shop.py"' in said

    check_each(_LOADERS, check)


def test_misspelled_name_is_corrected(folder: Path) -> None:
    file = written(folder, SERVER + "def build(): return server\n" + MAKERS)
    for name, hint in {"sever": "did you mean 'server'?", "biuld": "did you mean 'build'?"}.items():
        assert complaint(load_attached, f"{file}:{name}") == f"{file!r} has no attribute {name!r}; {hint}"
    assert complaint(load_attached, f"{file}:xyz").endswith("; choose from server, make, plain")
    assert complaint(load_attached, "./target_shp.py") == "no file 'target_shp.py'; did you mean 'target_shop.py'?"


def test_server_of_the_sdk_loads_only_where_any_server_does(folder: Path) -> None:
    file = written(folder, "from mcp.server import MCPServer\nmcp = MCPServer('plain')\n")
    assert type(load_any_server(file)) is MCPServer
    assert "has no server with roundtrip: mcp is of type MCPServer; import the class from roundtrip" in complaint(
        load_attached, file
    )


_INSTALLED: Final = {
    "MCPServer": "from mcp.server import MCPServer\nfrom roundtrip.install import install\nmcp = MCPServer('sdk')\n",
    "Server": "from mcp.server.lowlevel import Server\nfrom roundtrip.install import install\nmcp = Server('sdk')\n",
}


@pytest.mark.parametrize("kind", _INSTALLED)
@pytest.mark.parametrize("suffix", ["", ":make"])
def test_server_with_roundtrip_loads_where_it_need_not_be_ours(folder: Path, kind: str, suffix: str) -> None:
    file = written(folder, _INSTALLED[kind] + "install(mcp)\ndef make():\n    return mcp\n") + suffix
    ours: Any = load_attached(file)
    assert (type(ours.host).__name__, ours.name) == (kind, "sdk")
    assert load_any_server(file).name == "sdk"


@pytest.mark.parametrize("kind", _INSTALLED)
def test_server_without_roundtrip_is_told_of_install(folder: Path, kind: str) -> None:
    file = written(folder, _INSTALLED[kind])
    for target in (file, f"{file}:mcp"):
        said = complaint(load_attached, target)
        assert f"of type {kind}" in said
        assert said.endswith("or call install() of roundtrip.install or roundtrip.fastmcp on it")


def test_server_with_roundtrip_is_chosen_beside_others(folder: Path) -> None:
    text = _INSTALLED["MCPServer"] + "plain, other = mcp, MCPServer('other')\ninstall(other)\n"
    assert load_attached(written(folder, text)).name == "other"
    makers = written(folder, "from mcp.server.lowlevel import Server\ndef make() -> Server: ...\n")
    assert complaint(load_attached, makers).endswith(f"name the function: {makers}:make")


def test_failed_import_shows_the_frames_of_the_user_alone(folder: Path) -> None:
    written(folder, "import json\ndef read(text):\n    return json.loads(text)\n", "target_near.py")
    file = written(folder, "from target_near import read\nread('x')\n")
    assert complaint(load_attached, file) == (
        f"importing {file!r} failed: JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
        f'  File "{file}", line 2, in <module>\n'
        "    read('x')\n"
        '  File "target_near.py", line 3, in read\n'
        "    return json.loads(text)\n"
        "           ^^^^^^^^^^^^^^^^"
    )


def test_mistaken_option_shows_no_frame_of_roundtrip(folder: Path) -> None:
    file = written(folder, "from roundtrip import Server\nserver = Server('cinema', keys=[])\n")
    assert complaint(load_attached, file) == (
        f"importing {file!r} failed: ValueError: keys= must list at least one key; if the "
        f'process may make its own key, leave out keys=\n  File "{file}", line 2, in <module>\n'
        "    server = Server('cinema', keys=[])\n             ^^^^^^^^^^^^^^^^^^^^^^^^^"
    )


def test_failed_import_shows_its_cause_and_line_as_text(folder: Path) -> None:
    cause = "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('\\x1b[31mred') from error\n"
    said = complaint(load_attached, written(folder, cause))
    assert re.search(
        r"ValueError: \\x1b\[31mred\n.*line 4.*\n.*\ncaused by ZeroDivisionError: division by zero\n", said
    )
    assert "\x1b" not in said
    said = complaint(load_attached, written(folder, "seats = (\n"))
    assert said.startswith("importing 'target_shop.py' failed: SyntaxError: '(' was never closed")
    assert "line 1\n    seats = (\n" in said


def test_names_of_servers_are_told_from_commands_and_addresses() -> None:
    def check(text: str, expected: bool) -> None:
        assert names_server(text) is expected

    named = (
        "cinema.py",
        "./a/cinema.py",
        "cinema.py:server",
        "shop.app:server",
        "cinema:server",
        "/srv/cinema.py:make",
    )
    commands = (
        "python cinema.py",
        "python -m shop.app:server",
        "uv run --with x cinema.py:server",
        "cinema",
        "./cinema",
    )
    others = ("https://cinema.example/mcp", "http://127.0.0.1:8000", ":server", ":.py", "", "x" * 5000 + " a.py")
    check_each([*((text, True) for text in named), *((text, False) for text in (*commands, *others))], check)


def test_module_that_prints_leaves_standard_output_to_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "print('loading')\n" + SERVER + "@server.tool\ndef hi() -> str:\n    return 'hi'\n"
    file = written(folder, text)
    assert main(["graph", file, "--format", "text"]) == 0
    out, told = capsys.readouterr()
    assert out.startswith("hi\n")
    assert told == "loading\n"
    assert main(["calls", "stored", "--server", file]) == 2
    assert "the server stores no calls: it has no tool with task=True" in capsys.readouterr().err
