"""Connections to Redis, before any is opened."""

from typing import Any

import pytest
from redis.asyncio import ConnectionPool

from roundtrip.redis_connections import RedisConnections


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
