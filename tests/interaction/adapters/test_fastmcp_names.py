"""The names of FastMCP that roundtrip uses are where they were, and a version without one fails at import."""

import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.providers import LocalProvider

from roundtrip.server.adapters import fastmcp_names

MODULE = "roundtrip.server.adapters.fastmcp_names"


def test_moved_name_fails_at_import_with_its_name() -> None:
    moved = "fastmcp.server.dependencies._is_client_tool_call"
    place, _, name = moved.rpartition(".")
    code = f"import {place} as place\ndel place.{name}\nimport roundtrip.fastmcp\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: roundtrip.fastmcp needs FastMCP 4.1")
    assert name in last


@pytest.mark.parametrize("name", ["_mcp_server", "_request_state_security"])
def test_moved_attribute_of_server_is_named(name: str) -> None:
    mcp = FastMCP[Any]("shop")
    delattr(mcp, name)
    read = {"_mcp_server": fastmcp_names.low_level_of, "_request_state_security": fastmcp_names.policy_of}[name]
    with pytest.raises(ImportError, match=rf"FastMCP \S+ has moved FastMCP\.{name}"):
        read(mcp)


def test_every_way_to_register_goes_through_replaced_methods() -> None:
    provider = LocalProvider()
    seen: list[str] = []

    def note(kind: str, given: Any) -> None:
        seen.append(kind)

    for kind in ("tool", "prompt", "resource"):
        setattr(provider, f"add_{kind}", partial(note, kind))

    def fn(film: str) -> str:
        return film

    provider.tool(fn)
    provider.prompt(fn)
    provider.resource("seats://{film}")(fn)
    assert seen == ["tool", "prompt", "resource"]
    mcp = FastMCP[Any]("shop")
    assert mcp.local_provider in list(fastmcp_names.providers_of(mcp))
    mcp.tool(fn)
    assert [component.name for component in fastmcp_names.components_of(mcp.local_provider)] == ["fn"]
    assert fastmcp_names.routes_of(mcp) == []


def test_generated_name_is_recognized() -> None:
    names = (None, "shop", "FastMCP-shop", "FastMCP-beefs")
    assert [name for name in names if fastmcp_names.has_generated_name(FastMCP[Any](name))] == [None]
