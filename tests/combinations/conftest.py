"""Servers of the stores of some rows."""

from tests.kit.stores import postgres, redis, started

__all__ = ["postgres", "redis", "started"]
