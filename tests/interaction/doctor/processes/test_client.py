"""The command `roundtrip doctor --client` in a process of its own, over stdio and HTTP."""

import json
import re
import subprocess
import sys
from typing import Any, Final

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitRequestParams, ElicitResult, TextContent

from roundtrip.doctor.client_server import TOOL
from roundtrip.testing import Era
from tests.kit.hosts import ROOT
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

COMMAND: Final = [sys.executable, "-m", "roundtrip", "doctor", "--client"]


async def accept(context: Any, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": True})


async def test_client_over_stdio_is_reported_and_tried(era: Era) -> None:
    command, *arguments = [*COMMAND, "--stdio"]
    server = StdioServerParameters(command=command, args=arguments, cwd=ROOT)
    async with Client(
        stdio_client(server), mode=era.value, elicitation_callback=accept, read_timeout_seconds=WAIT
    ) as client:
        result = await client.call_tool(TOOL, {"try_a_form": True})
    (block,) = result.content
    assert isinstance(block, TextContent)
    data = result.structured_content
    assert data is not None
    can_be_asked = {"form": True, "URL": True, "sampling": False, "roots": False, "tasks": False, "apps": False}
    assert data["can_be_asked"] == can_be_asked
    assert data["trial"]["answer"] == "accepted with yes"
    assert re.search(r"tried      a form: accepted with yes after \S+ s", block.text)


def started(*arguments: str) -> "subprocess.Popen[str]":
    command = [*COMMAND, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


async def test_command_prints_the_configuration_and_reports_clients() -> None:
    process = started("--port", "0")
    assert process.stdout is not None
    try:
        found = re.search(r"http://[\d.:]+/mcp", process.stdout.readline())
        assert found is not None
        snippet = "".join(iter(process.stdout.readline, "}\n")) + "}"
        entry = json.loads(snippet)["mcpServers"]["roundtrip-doctor"]
        assert [entry["command"], *entry["args"]] == [*COMMAND, "--stdio"]
        assert process.stdout.readline().startswith("Each client")
        async with Client(found[0], elicitation_callback=accept) as client:
            await client.list_tools()
        assert process.stdout.readline() == "\n"
        assert process.stdout.readline().startswith("mcp 0.1.0, protocol ")
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=WAIT)
    assert (process.returncode, errors) == (0, "")
