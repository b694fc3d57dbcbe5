"""Stores of property tests."""

from tests.kit.stores import started

__all__ = ["started"]
