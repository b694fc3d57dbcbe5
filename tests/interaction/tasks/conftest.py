"""Fixtures of ledgers and of the servers that they need."""

from tests.kit.stores import ledger, redis, started

__all__ = ["ledger", "redis", "started"]
