"""Set a context variable for the code inside of a `with` block."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Generator[None]:
    """Set a context variable, and restore it at the end of the block."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)
