"""The examples as the programs that they are."""

import sys
from pathlib import Path

import anyio
import pytest
from mcp.client.stdio import StdioServerParameters

from roundtrip.testing import Era, User
from tests.kit.hosts import ROOT
from tests.kit.players import Person, connect, text_of

pytestmark = pytest.mark.anyio

BOOKSHOP = ROOT / "examples" / "bookshop"


def program(path: Path) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=[str(path)])


@pytest.mark.parametrize("path", sorted(BOOKSHOP.glob("*.py")), ids=lambda path: path.name)
async def test_every_step_serves_over_stdio(path: Path) -> None:
    async with connect(program(path), Era.RETRY, Person({"will_wait": True})) as client:
        (tool,) = (await client.list_tools()).tools
        result = await client.call_tool(tool.name, {"title": "Middlemarch"})
    assert not result.is_error
    assert "Middlemarch" in text_of(result)


async def test_a_program_asks_an_older_client_over_its_open_connection() -> None:
    user = User(program(BOOKSHOP / "ask.py"), {lambda _: True: {"will_wait": True}}, era=Era.LIVE)
    result = await user.call("order", title="Middlemarch")
    assert result.text == "Middlemarch is ordered from the publisher."


@pytest.mark.parametrize(
    ("user", "sees"),
    [("ada", "['today', 'ten_days']\nten_days: Bergen: rain, ten times, ada"), ("bob", "['today']\nten_days: Unknown")],
)
async def test_the_allow_list_is_looked_at_from_the_command_line(user: str, sees: str) -> None:
    command = [sys.executable, "-m", "examples.allow_list", "--user", user]
    done = await anyio.run_process(command, cwd=ROOT)
    assert f"{user} sees {sees}" in done.stdout.decode()
