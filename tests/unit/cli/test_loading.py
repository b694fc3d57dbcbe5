"""The server of a command line is found in files and modules, and mistakes are explained."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.server import MCPServer

from roundtrip.cli import main
from roundtrip.cli.loading import load_any_server, load_attached, load_server, names_server
from tests.kit.tables import check_each
from tests.unit.cli.targets import complaint, written

SERVER: Final = "from roundtrip import Server\nserver = Server('cinema')\n"
_LOADERS: Final = (load_server, load_attached, load_any_server)


def test_only_server_of_a_file_needs_no_name(folder: Path) -> None:
    def check(load: Any) -> None:
        file = written(folder, SERVER + "same = server\n")
        assert load(file).name == "cinema"
        assert load(str(folder / file)).name == "cinema"
        assert load(f"./{file}:server").name == "cinema"

    check_each(_LOADERS, check)


def test_file_whose_folder_has_spaces_is_found(folder: Path) -> None:
    (folder / "my shop").mkdir()
    file = written(folder, SERVER, "my shop/target_shop.py")
    assert names_server(file)
    assert load_server(file).name == "cinema"


def test_several_servers_of_a_file_are_listed(folder: Path) -> None:
    def check(load: Any) -> None:
        file = written(folder, SERVER + "other = Server('other')\n")
        assert complaint(load, file) == (
            f"{file!r} has 2 servers, server, other; name one of them: {file}:server or {file}:other"
        )

    check_each(_LOADERS, check)


def test_functions_that_make_servers_are_listed(folder: Path) -> None:
    def check(load: Any) -> None:
        text = (
            "from typing import Any\nfrom roundtrip import Server\n"
            "def make(keys: list[str]) -> Server[Any]: ...\n"
            "def plain() -> 'Server': ...\n"
            "def other() -> int: ...\n"
            "def unknown() -> 'Nothing': ...\n"
        )
        file = written(folder, text)
        assert complaint(load, file).endswith(f"name the function: {file}:make or {file}:plain")

    check_each(_LOADERS, check)


def test_file_without_a_server_is_told_how_to_have_one(folder: Path) -> None:
    def check(load: Any) -> None:
        said = complaint(load, written(folder, "number = 1\n"))
        assert "has no server at module level; add server = Server('target_shop')" in said
        assert 'write its command: "python target_shop.py"' in said

    check_each(_LOADERS, check)


def test_server_of_the_sdk_loads_only_where_any_server_does(folder: Path) -> None:
    file = written(folder, "from mcp.server import MCPServer\nmcp = MCPServer('plain')\n")
    assert type(load_any_server(file)) is MCPServer
    assert "has no roundtrip.Server: mcp is of type MCPServer; import the class from roundtrip" in complaint(
        load_server, file
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
    said = complaint(load_server, file)
    assert f"of type {kind}" in said
    assert "servers of other classes run their stored calls in the processes that serve them" in said
    assert load_any_server(file).name == "sdk"


@pytest.mark.parametrize("kind", _INSTALLED)
@pytest.mark.parametrize("suffix", ["", ":mcp"])
def test_server_without_roundtrip_is_told_of_install(folder: Path, kind: str, suffix: str) -> None:
    said = complaint(load_attached, written(folder, _INSTALLED[kind]) + suffix)
    assert f"of type {kind}" in said
    assert said.endswith("or call install() of roundtrip.install or roundtrip.fastmcp on it")


def test_server_with_roundtrip_is_chosen_beside_others(folder: Path) -> None:
    text = _INSTALLED["MCPServer"] + "plain, other = mcp, MCPServer('other')\ninstall(other)\n"
    assert load_attached(written(folder, text)).name == "other"


def test_functions_that_make_servers_of_other_classes_are_listed(folder: Path) -> None:
    file = written(folder, "from mcp.server.lowlevel import Server\ndef make() -> Server: ...\n")
    assert complaint(load_attached, file).endswith(f"name the function: {file}:make")


def test_failed_import_shows_the_frames_of_the_user_alone(folder: Path) -> None:
    written(folder, "import json\ndef read(text):\n    return json.loads(text)\n", "target_near.py")
    file = written(folder, "from target_near import read\nread('x')\n")
    assert complaint(load_server, file) == (
        f"importing {file!r} failed: JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
        f'  File "{file}", line 2, in <module>\n'
        "    read('x')\n"
        '  File "target_near.py", line 3, in read\n'
        "    return json.loads(text)\n"
        "           ^^^^^^^^^^^^^^^^"
    )


def test_failed_import_shows_its_cause(folder: Path) -> None:
    text = "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('no price') from error\n"
    said = complaint(load_server, written(folder, text))
    assert re.search(r"ValueError: no price\n.*line 4.*\n.*\ncaused by ZeroDivisionError: division by zero\n", said)


def test_syntax_error_is_shown_with_its_line(folder: Path) -> None:
    said = complaint(load_server, written(folder, "seats = (\n"))
    assert said.startswith("importing 'target_shop.py' failed: SyntaxError: '(' was never closed")
    assert "line 1\n    seats = (\n" in said


def test_author_of_an_error_cannot_reach_the_terminal(folder: Path) -> None:
    said = complaint(load_server, written(folder, "raise ValueError('\\x1b[31mred')\n"))
    assert "\x1b" not in said
    assert r"\x1b[31mred" in said


def test_names_of_servers_are_no_commands() -> None:
    def check(text: str) -> None:
        assert names_server(text)

    check_each(
        ["cinema.py", "./a/cinema.py", "cinema.py:server", "shop.app:server", "cinema:server", "/srv/cinema.py:make"],
        check,
    )


def test_commands_and_addresses_are_no_names_of_servers() -> None:
    def check(text: str) -> None:
        assert not names_server(text)

    check_each(
        [
            "python cinema.py",
            "python -m shop.app:server",
            "uv run --with x cinema.py:server",
            "https://cinema.example/mcp",
            "http://127.0.0.1:8000",
            "cinema",
            "./cinema",
            ":server",
            ":.py",
            "",
            "x" * 5000 + " a.py",
        ],
        check,
    )


def test_commands_take_a_file_with_one_server(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(command: list[str], message: str) -> None:
        assert main([*command, written(folder, SERVER)]) == 2
        assert message in capsys.readouterr().err

    check_each(
        [
            (["graph"], "the server 'target_shop.py' has no tools"),
            (["tasks", "ls"], "the server stores no calls: it has no tool with task=True"),
        ],
        check,
    )


def test_module_that_prints_leaves_standard_output_to_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "print('loading')\n" + SERVER + "@server.tool\ndef hi() -> str:\n    return 'hi'\n"
    assert main(["graph", written(folder, text), "--format", "text"]) == 0
    out, told = capsys.readouterr()
    assert out.startswith("hi\n")
    assert told == "loading\n"
