"""Fixtures for tests of servers: the clock, functions of the graph that are replaced, and a transcript of the calls."""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from roundtrip.server.server import Server
from roundtrip.testing.chosen import UserDefaults
from roundtrip.testing.clocks import Clock
from roundtrip.trace.reading.calls import TracedCall, join
from roundtrip.trace.reading.transcripts import read_files

__all__ = ["Override", "Traces", "clock", "overrides", "trace"]

Override = Callable[[Server[Any], Mapping[Callable[..., Any], Callable[..., Any]]], None]
"""Has functions run in the place of others, of the graph of one server, until the test ends."""


@pytest.fixture
def clock() -> Generator[Clock]:
    """The time of day of this process, which stands still until the test moves it: `clock.advance(seconds=601)`."""
    with Clock().set() as clock:
        yield clock


@pytest.fixture
def overrides() -> Generator[Override]:
    """Replaces resolvers, dependencies and gates for this test: `overrides(server, {fetch_price: lambda: 10})`."""
    with ExitStack() as stack:

        def override(server: Server[Any], replacements: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
            if not isinstance(server, Server):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"overrides() takes a roundtrip server that has been made, not {server!r}")
            stack.enter_context(server.overrides(replacements))

        yield override


class Traces:
    """What the servers of a test's users tell of its calls, with all values revealed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The transcript: `roundtrip trace show ID PATH` shows a call of it."""

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


@pytest.fixture
def trace(roundtrip_choice: UserDefaults) -> Traces:
    """Records the calls of the test's users on roundtrip's servers in this process, as `Server(trace=...)` would."""
    recorder = roundtrip_choice.recorder
    if recorder is None:
        pytest.fail("`trace` was asked for too late: take it as an argument of the test, or of a fixture of it")
    return Traces(recorder.path)
