"""Connections to stores: the pool of Redis, their end with the process, and errors that mean that the store is down."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from redis.asyncio import ConnectionPool

from roundtrip.connections.postgres import PostgresConnections, PostgresDown
from roundtrip.connections.redis import RedisConnections
from tests.kit.hosts import WAIT
from tests.kit.redis_server import redis_server


@pytest.mark.parametrize("query", ["", "?protocol=3", "?protocol=3&db=2", "?db=2&protocol=3"])
def test_the_pool_is_built_for_the_protocol_that_is_read(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """redis-py chooses its parsers and maintenance notifications when the pool is built."""
    built: list[dict[str, Any]] = []
    build: Any = vars(ConnectionPool)["__init__"]

    def watched(self: Any, *args: Any, **options: Any) -> None:
        built.append(options)
        build(self, *args, **options)

    monkeypatch.setattr(ConnectionPool, "__init__", watched)
    RedisConnections(f"redis://localhost{query}", timeout=1, options={"protocol": 3})
    assert [(options["protocol"], options.get("db")) for options in built] == [(2, 2 if "db=2" in query else None)]


_SHOP: Final = """
from roundtrip import Server
from roundtrip.ledger import RedisLedger

server = Server("shop", keys=["7f" * 32], ledger=RedisLedger("{url}"))


@server.tool(exactly_once=True, uncovered="round")
async def pay() -> str:
    return "paid"
"""


def test_command_whose_server_leaves_connections_open_ends_without_a_word(tmp_path: Path) -> None:
    with redis_server() as redis:
        (tmp_path / "shop.py").write_text(_SHOP.format(url=redis.url))
        command = [sys.executable, "-m", "roundtrip", "call", "shop.py:server", "pay"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "paid\n", "")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (asyncpg.exceptions.TargetServerAttributeNotMatched("no host accepts writes"), "no host accepts writes"),
        (asyncpg.exceptions.ProtocolError("unexpected data"), "unexpected data"),
        (AttributeError("server_version"), "the server at this address is not PostgreSQL"),
        (KeyError("server_version"), "the server at this address is not PostgreSQL"),
        (ConnectionRefusedError("refused"), "refused"),
    ],
)
async def test_error_at_connecting_says_that_it_is_down(
    raised: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*_: Any, **__: Any) -> Any:
        raise raised

    monkeypatch.setattr(asyncpg, "connect", connect)
    connections = PostgresConnections("postgresql://db.example/shop", schema="calls", timeout=2, options={})
    with pytest.raises(PostgresDown, match=said):
        await connections.fetch("SELECT 1")
