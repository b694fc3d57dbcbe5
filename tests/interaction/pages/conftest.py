"""Stores of the tests of pages."""

from tests.kit.stores import started

__all__ = ["started"]
