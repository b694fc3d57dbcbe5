"""The probe of a server: its callers, its replies, and its limits."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import CallToolResult, TextContent

from roundtrip import Server
from roundtrip.ledger import MemoryLedger
from roundtrip.switches import PROBE_TOOL, PROBE_VARIABLE
from roundtrip.testing import Era

pytestmark = pytest.mark.anyio


class CountingLedger(MemoryLedger):
    """Ledger that keeps the claimed keys."""

    def __init__(self) -> None:
        super().__init__()
        self.claimed: list[str] = []

    async def claim(self, key: str, answers_digest: str, **given: Any) -> Any:
        self.claimed.append(key)
        return await super().claim(key, answers_digest, **given)


def shop(**options: Any) -> Server[Any]:
    server = Server[Any]("shop", **options)

    @server.tool(exactly_once=True, uncovered="round")
    def pay() -> str:
        return "paid"

    return server


@asynccontextmanager
async def visiting(server: Server[Any]) -> AsyncGenerator[Client]:
    async with Client(server, mode=Era.RETRY.value) as client:
        yield client


async def probe(server: Server[Any], **arguments: Any) -> CallToolResult:
    async with visiting(server) as client:
        return await client.call_tool(PROBE_TOOL, arguments)


def told(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result
    assert result.structured_content is not None
    return result.structured_content


async def test_the_argument_or_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    switched: dict[str, bool] = {"unset": not (await probe(shop())).is_error}
    for said in ("1", " Yes ", "0", ""):
        monkeypatch.setenv(PROBE_VARIABLE, said)
        switched[said] = not (await probe(shop())).is_error
    assert switched == {"unset": False, "1": True, " Yes ": True, "0": False, "": False}
    monkeypatch.setenv(PROBE_VARIABLE, "1")
    assert (await probe(shop(probe=False))).is_error
    monkeypatch.setenv(PROBE_VARIABLE, "maybe")
    with pytest.raises(ValueError, match="must be 1 or 0, got"):
        shop()


async def test_probe_is_hidden_from_lists_and_build_digests() -> None:
    with_probe, without = shop(probe=True, keys=["k" * 32]), shop(keys=["k" * 32])
    async with visiting(with_probe) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["pay"]
    assert with_probe.identity() == without.identity()


async def test_author_tool_of_the_probe_name_has_precedence() -> None:
    server = shop(probe=True)

    @server.tool(name=PROBE_TOOL)
    def mine() -> str:
        return "mine"

    result = await probe(server)
    assert [block.text for block in result.content if isinstance(block, TextContent)] == ["mine"]


async def test_two_servers_are_two_instances_and_one_stays_one() -> None:
    one, other = shop(probe=True), shop(probe=True)
    names = [told(await probe(server))["instance"] for server in (one, one, other)]
    assert names[0] == names[1] != names[2]


async def test_tools_that_not_everybody_sees_are_not_named() -> None:
    server = shop(probe=True)

    @server.tool(enabled=False)
    def launder() -> str:
        return "clean"

    @server.tool(enabled=lambda: False)
    def bribe() -> str:
        return "done"

    assert set(told(await probe(server))["tools"]) == {"pay", "(hidden)"}


async def test_no_client_chooses_what_is_written_and_marks_are_few() -> None:
    ledger = CountingLedger()
    server = shop(probe=True, ledger=ledger)
    async with visiting(server) as client:
        answers = [told(await client.call_tool(PROBE_TOOL, {"claim": True})) for _ in range(40)]
        assert [answer["marked"] for answer in answers] == ["claimed"] * 32 + ["busy"] * 8
        assert ledger.claimed == [f"probe:{answer['mark']}" for answer in answers[:32]]
        seen = told(await client.call_tool(PROBE_TOOL, {"look": answers[0]["mark"]}))
        assert (seen["looked"], seen["saw"]) == ("seen", seen["instance"])
        absent = told(await client.call_tool(PROBE_TOOL, {"look": "0" * 32}))
        assert (absent["looked"], absent["saw"]) == ("absent", None)
        assert len(ledger.claimed) == 32


async def test_only_marks_can_be_looked_for() -> None:
    for look in ("probe:x", "a-call-of-somebody", "0" * 33):
        assert (await probe(shop(probe=True), look=look)).is_error


async def test_a_ledger_that_no_tool_needs_is_left_alone() -> None:
    ledger = CountingLedger()
    server = Server[Any]("shop", probe=True, ledger=ledger)
    answer = told(await probe(server, claim=True))
    assert "mark" not in answer
    assert ledger.claimed == []
