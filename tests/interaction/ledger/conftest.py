"""Fixtures of ledgers and of the servers that they need."""

from tests.kit.stores import cluster, postgres, redis, started

__all__ = ["cluster", "postgres", "redis", "started"]
