"""Errors of the library for PostgreSQL, each of which means that the store is down."""

from typing import Any

import asyncpg
import pytest

from roundtrip.postgres_connections import PostgresConnections, PostgresDown

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (asyncpg.exceptions.TargetServerAttributeNotMatched("no host accepts writes"), "no host accepts writes"),
        (asyncpg.exceptions.ProtocolError("unexpected data"), "unexpected data"),
        (AttributeError("server_version"), "what answers there is no PostgreSQL"),
        (KeyError("server_version"), "what answers there is no PostgreSQL"),
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
    with pytest.raises(PostgresDown, match=said):
        async with connections.subscribed("news"):
            raise AssertionError
