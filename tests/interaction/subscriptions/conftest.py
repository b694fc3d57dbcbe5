"""Fixtures of ledgers and of the servers that they need."""

from tests.kit.stores import redis, started

__all__ = ["redis", "started"]
