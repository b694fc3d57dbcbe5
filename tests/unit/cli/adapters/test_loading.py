"""Servers of FastMCP are found in files, with `roundtrip` and without it."""

from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip.cli.running.loading import load_any_server, load_attached
from tests.unit.cli.targets import complaint, written


def test_servers_of_fastmcp_and_the_low_level_are_found(folder: Path) -> None:
    file = written(folder, "from fastmcp import FastMCP\nmcp = FastMCP('fast')\n")
    assert load_any_server(file).name == "fast"
    file = written(folder, "from mcp.server.lowlevel import Server\nlow = Server('low')\n", "target_low.py")
    assert load_any_server(file).name == "low"


INSTALLED: Final = "from fastmcp import FastMCP\nfrom roundtrip.fastmcp import install\nmcp = FastMCP('sdk')\n"


@pytest.mark.parametrize("suffix", ["", ":mcp", ":make"])
def test_server_with_roundtrip_loads_where_it_need_not_be_ours(folder: Path, suffix: str) -> None:
    file = written(folder, INSTALLED + "install(mcp)\ndef make():\n    return mcp\n") + suffix
    ours: Any = load_attached(file)
    assert (type(ours.host).__name__, ours.name) == ("FastMCP", "sdk")
    assert load_any_server(file).name == "sdk"


def test_server_without_roundtrip_is_told_of_install(folder: Path) -> None:
    said = complaint(load_attached, written(folder, INSTALLED))
    assert "of type FastMCP" in said
    assert said.endswith("or call install() of roundtrip.install or roundtrip.fastmcp on it")
    file = written(folder, "from fastmcp import FastMCP\ndef fast() -> FastMCP: ...\n")
    assert complaint(load_attached, file).endswith(f"name the function: {file}:fast")
