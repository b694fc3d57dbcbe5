"""Fixtures of these tests: time limits that do not pass by themselves."""

from tests.kit.time_limits import limits

__all__ = ["limits"]
