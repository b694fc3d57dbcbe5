"""Entries of ledgers at rest: sealed with the server's keys, through both steps of a rotation."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Server, ToolError
from roundtrip.ledger import SqliteLedger
from roundtrip.testing import LegByLeg
from tests.interaction.ledger.shops import Shop, text_of
from tests.kit.secrets import NEW
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio

SECRET = "4711-marker"


class Vault:
    """Tool whose step, result and failure are secrets, on a ledger in a file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.db"
        self.shop = Shop(SqliteLedger(self.path))
        self.drawn: list[str] = []
        self.shop.add(self.draw)
        self.shop.add(self.fail)

    async def secret(self) -> str:
        self.drawn.append(SECRET)
        return SECRET

    async def draw(self, ctx: Context[Any, Any]) -> str:
        """Draw a number."""
        number = await ctx.step("number", self.secret)
        agreed = await ctx.ask("agreed", "Show it?", bool)
        return f"{number} {agreed}"

    async def fail(self) -> str:
        """Fail."""
        raise ToolError(SECRET)

    def instance(self, *keys: bytes) -> LegByLeg:
        return LegByLeg(lambda: self.shop(keys))

    def bytes_kept(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.path.parent.iterdir())

    def rows(self, statement: str, *given: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as file:
            return file.execute(statement, given).fetchall()


async def unavailable(legs: LegByLeg, tool: str, **more: Any) -> None:
    with pytest.raises(MCPError) as caught:
        await legs.leg(tool, **more)
    assert caught.value.error.data == {"reason": "ledger_unavailable", "tool": tool}


async def test_nothing_that_the_server_computed_lies_readable_in_a_file(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    legs = vault.instance(KEY)
    await legs.leg("draw")
    await legs.leg("draw", state=legs.token)
    assert vault.rows("SELECT count(*) FROM notes") == [(1,)]
    assert SECRET.encode() not in vault.bytes_kept()
    shown = [text_of(await legs.leg("draw", answers={"agreed": True}, state=legs.token)) for _ in range(2)]
    await legs.leg("fail")
    failed = [text_of(await legs.leg("fail", state=legs.token)) for _ in range(2)]
    assert (shown, failed) == ([f"{SECRET} True"] * 2, [f"Error executing tool fail: {SECRET}"] * 2)
    assert SECRET.encode() not in vault.bytes_kept()


async def test_notes_and_results_outlast_both_steps_of_a_rotation(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    legs = vault.instance(KEY)
    await legs.leg("draw")
    begun = legs.token
    for keys in ((KEY,), (KEY, NEW), (NEW, KEY)):
        await vault.instance(*keys).leg("draw", state=begun)
    await legs.leg("draw", state=begun)
    assert vault.drawn == [SECRET]
    shown = [
        text_of(await vault.instance(*keys).leg("draw", answers={"agreed": True}, state=legs.token))
        for keys in ((NEW, KEY), (KEY, NEW), (NEW, KEY))
    ]
    assert shown == [f"{SECRET} True"] * 3


async def test_an_instance_that_lacks_the_key_runs_nothing_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vault = Vault(tmp_path)
    legs = vault.instance(KEY)
    await legs.leg("draw")
    begun = legs.token
    await vault.instance(NEW, KEY).leg("draw", state=begun)
    await unavailable(legs, "draw", state=begun)
    assert vault.drawn == [SECRET]
    assert "no key of this server opens" in caplog.text
    # The claim was taken back: an instance that has the key goes on at once.
    other = vault.instance(NEW, KEY)
    await other.leg("draw", state=begun)
    assert (list(other.questions), vault.drawn) == (["agreed"], [SECRET])


@pytest.mark.parametrize("moved", ["another call", "readable"])
async def test_result_sealed_for_another_call_is_not_returned(tmp_path: Path, moved: str) -> None:
    vault = Vault(tmp_path)
    legs = [vault.instance(KEY) for _ in range(2)]
    for one in legs:
        await one.leg("fail")
        await one.leg("fail", state=one.token)
    (first, result), (second, _) = vault.rows("SELECT key, result FROM entries ORDER BY key")
    vault.rows("UPDATE entries SET result = ? WHERE key = ?", result, second)
    if moved == "readable":
        vault.rows("UPDATE entries SET result = ? WHERE key = ?", '{"failed": "forged"}', first)
    refused = 0
    for one in legs:
        try:
            await one.leg("fail", state=one.token)
        except MCPError:
            refused += 1
    assert refused == (1 if moved == "another call" else 2)


async def test_a_server_without_keys_of_its_own_keeps_readable_results(tmp_path: Path) -> None:
    """An author's codec has no key for sealing."""
    ledger = SqliteLedger(tmp_path / "ledger.db")

    def server() -> Server:
        made = Server("shop", request_state_security=RequestStateSecurity(keys=[KEY]), ledger=ledger)

        @made.tool(exactly_once=True, uncovered="round")
        async def give() -> str:
            return "given"

        return made

    legs = LegByLeg(server)
    await legs.leg("give")
    assert [text_of(await legs.leg("give", state=legs.token)) for _ in range(2)] == ["given"] * 2
