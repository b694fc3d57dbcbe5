"""The values of the pytest fixtures `overrides` and `trace`."""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from roundtrip.server.server import Server
from roundtrip.trace.reading.calls import TracedCall, join
from roundtrip.trace.reading.transcripts import read_files

__all__ = ["Override", "Traces", "overriding"]

Override = Callable[[Server[Any], Mapping[Callable[..., Any], Callable[..., Any]]], None]
"""Replaces functions in the graph of one server until the test ends."""


@contextmanager
def overriding() -> Generator[Override]:
    """Yield a function that replaces functions of servers until the `with` block ends."""
    with ExitStack() as stack:

        def override(server: Server[Any], replacements: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
            if not isinstance(server, Server):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"overrides() takes a roundtrip server that has been made, not {server!r}")
            stack.enter_context(server.overrides(replacements))

        yield override


class Traces:
    """The transcript of a test's calls, with all values revealed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The transcript's file: `roundtrip trace show ID PATH` shows a call of it."""

    @property
    def calls(self) -> list[TracedCall]:
        """Every call so far, in the order in which they began."""
        return list(join(read_files([self.path]).lines).calls.values()) if self.path.exists() else []

    @property
    def call(self) -> TracedCall:
        """The only call.

        Raises:
            AssertionError: There are none, or several.
        """
        calls = self.calls
        if len(calls) != 1:
            raise AssertionError(
                f"{len(calls)} calls were recorded: {', '.join(call.tool for call in calls) or 'none'}"
            )
        return calls[0]
