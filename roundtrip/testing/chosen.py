"""The defaults of the running test's users, from its mark and its fixtures, and the values of fixtures."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from roundtrip.client.legs import ERAS, Era
from roundtrip.server.server import Server
from roundtrip.testing.networks.choosing import Stack, choose, name_of
from roundtrip.testing.networks.fleet import Make
from roundtrip.trace.reading.calls import TracedCall, join
from roundtrip.trace.reading.transcripts import read_files
from roundtrip.trace.writing.recorder import Recorder

__all__ = [
    "CHOSEN",
    "Chosen",
    "Override",
    "Traces",
    "UserDefaults",
    "choices_for",
    "chosen_for_test",
    "overriding",
]

_ERAS_BY_NAME: Final = {"retry": (Era.RETRY,), "live": (Era.LIVE,), "both": ERAS}
_MARK_OPTIONS: Final = ("eras", "hostile", "without", "deploy", "secrets", "over")


@dataclass(frozen=True, slots=True)
class UserDefaults:
    """Settings of users whose constructor leaves them out."""

    era: Era = Era.RETRY
    network: Stack = ()
    """The networks that requests go through, outermost first."""
    over: Literal["memory", "http"] = "memory"
    """The transport to server objects."""
    recorder: Recorder | None = None
    """Records the legs that roundtrip's servers in this process serve."""
    wired: bool = False
    """Whether every JSON-RPC message is kept; users speak HTTP then."""
    carried: list[str] = field(default_factory=list[str])
    """The tools called through the networks."""

    @property
    def network_name(self) -> str:
        """The name of its networks, as in a test's id."""
        return name_of(self.network)


class Chosen:
    """The defaults of the test that runs now.

    A process runs one test at a time, in any thread or asyncio task. A context variable would not do: the task that
    runs asynchronous tests keeps the context of its first fixture.
    """

    def __init__(self) -> None:
        self._now = UserDefaults()

    def get(self) -> UserDefaults:
        """Return the defaults."""
        return self._now

    def set(self, choice: UserDefaults) -> UserDefaults:
        """Replace the defaults, and return those before, for a later `set`."""
        before, self._now = self._now, choice
        return before


CHOSEN: Final = Chosen()


def choices_for(
    eras: object = "both",
    hostile: object = False,
    without: Iterable[str] = (),
    deploy: Make | None = None,
    secrets: Sequence[str] = (),
    over: Literal["memory", "http"] = "memory",
    **unknown: object,
) -> dict[str, UserDefaults]:
    """Return the defaults of each run of a marked test, by the run's name.

    Raises:
        ValueError: An option of the mark is invalid.
    """
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is not an option of it; there are {', '.join(_MARK_OPTIONS)}")
    chosen = _ERAS_BY_NAME.get(eras) if isinstance(eras, str) else None
    if chosen is None:
        raise ValueError(f"eras= must be one of {', '.join(map(repr, _ERAS_BY_NAME))}, got {eras!r}")
    if over not in ("memory", "http"):
        raise ValueError(f"over= must be 'memory' or 'http', got {over!r}")
    if hostile is False and (without or deploy is not None or secrets):
        raise ValueError("without=, deploy= and secrets= need hostile=; add hostile=True, or remove them")
    choices = {era.name.lower(): UserDefaults(era, over=over) for era in chosen}
    for stack in choose(hostile, without=without, deploy=deploy, secrets=secrets):
        name = name_of(stack)
        alike = sum(one == name or one.startswith(f"{name}#") for one in choices)
        choices[f"{name}#{alike + 1}" if alike else name] = UserDefaults(Era.RETRY, stack, over=over)
    return choices


@contextmanager
def chosen_for_test(choice: UserDefaults | None, *, wired: bool, trace: Path | None) -> Generator[UserDefaults]:
    """Use a choice for one test, inside a `with` block.

    Args:
        choice: The choice of the mark, if the test has one.
        wired: Whether the test compares messages.
        trace: The file of the test's transcript.
    """
    # Several tests, with other parameters, may share a choice.
    choice = replace(choice or UserDefaults(), carried=[])
    if wired:
        choice = replace(choice, wired=True)
    if trace is not None:
        choice = replace(choice, recorder=Recorder(trace, reveal="all", instance="test"))
    before = CHOSEN.set(choice)
    try:
        yield choice
    finally:
        CHOSEN.set(before)


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
