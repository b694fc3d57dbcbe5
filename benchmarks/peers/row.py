"""Comparison rows: a feature, our test for it, and a function per library that shows what the library does."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

__all__ = ["LIBRARIES", "Row", "Shown", "lacks", "on", "takes", "times"]

Shown: TypeAlias = Callable[[], Awaitable[str]]
"""A function that runs a real server, and describes in one line what it did."""

LIBRARIES: Final = ("roundtrip", "sdk", "fastmcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Feature, and the functions that show it."""

    name: str
    feature: str
    test: str | None
    """Our test: a path from the repository root, and a function name. None if roundtrip lacks the feature."""

    roundtrip: Shown
    sdk: Shown
    fastmcp: Shown

    def functions(self) -> Mapping[str, Shown]:
        """Return the functions by library."""
        return {"roundtrip": self.roundtrip, "sdk": self.sdk, "fastmcp": self.fastmcp}


def on(make: Callable[[], Any], check: Callable[[Any], Awaitable[str]]) -> Shown:
    """Return a function that makes a server, and shows what a check finds on it."""

    async def shown() -> str:
        return await check(make())

    return shown


def lacks(function: Callable[..., Any], *options: str) -> Shown:
    """Return a function that shows that another function takes none of these options.

    Raises:
        AssertionError: The other function takes one of them. The returned function raises this.
    """

    async def shown() -> str:
        found = [name for name in options if name in inspect.signature(function).parameters]
        if found:
            raise AssertionError(f"{function.__qualname__} takes {found}")
        return f"no option {' or '.join(f'`{name}=`' for name in options)}"

    return shown


def takes(function: Callable[..., Any], *options: str) -> Shown:
    """Return a function that shows that another function takes these options.

    Raises:
        AssertionError: The other function lacks one of them. The returned function raises this.
    """

    async def shown() -> str:
        missing = [name for name in options if name not in inspect.signature(function).parameters]
        if missing:
            raise AssertionError(f"{function.__qualname__} does not take {missing}")
        return ", ".join(f"`{name}=`" for name in options)

    return shown


def times(number: int) -> str:
    """Return how often something happened, in a word if there is one."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
