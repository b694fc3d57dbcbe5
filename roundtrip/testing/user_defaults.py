"""Default settings for a test's `User`s, read from the test's mark and fixtures. The values of roundtrip's fixtures are
also defined here.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, cast

from roundtrip.adapters.finding import AnyServer, attached
from roundtrip.client.legs import ERAS, LIVES, Era
from roundtrip.testing.networks.attacks import Delay, Eavesdrop, Garble, Interleave, Invent, Strip, Swap, Tamper
from roundtrip.testing.networks.carrying import BeginAgain, Deploy, Drop, Duplicate, Hop, Reorder, Restart, Rotate
from roundtrip.testing.networks.fleet import Make
from roundtrip.testing.networks.network import Network
from roundtrip.testing.networks.tasks import Abort, Kill, Outage
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import read_files
from roundtrip.trace.writing.recorder import Recorder

Stack = tuple[Network, ...]
"""Networks that requests pass through, outermost first."""

_DELIVERY_NETWORKS: Final = (
    Hop,
    Restart,
    Duplicate,
    partial(Duplicate, at_once=True),
    Drop,
    BeginAgain,
    Reorder,
    Rotate,
)
_ATTACKS: Final = (Delay, Tamper, Swap, Strip, Invent, Garble, Interleave, Eavesdrop)
NETWORKS: Final[Mapping[str, Callable[[], Network]]] = {make().name: make for make in (*_DELIVERY_NETWORKS, *_ATTACKS)}
"""Networks that need no arguments, by name. `Deploy` is not listed, because it needs a function that makes the other
build.
"""
TASK_NETWORKS: Final[Mapping[str, Callable[[], Network]]] = {make.name: make for make in (Kill, Outage, Abort)}
"""More networks, which are used only for tasks."""
_ALL_NETWORKS: Final = {**NETWORKS, **TASK_NETWORKS}

_ERAS_BY_NAME: Final = {"retry": (Era.RETRY,), "live": (Era.LIVE,), "both": ERAS, "task": (Era.TASK,), "all": LIVES}
_MARK_OPTIONS: Final = ("eras", "hostile", "without", "deploy", "secrets", "over")


@dataclass(frozen=True, slots=True)
class UserDefaults:
    """Default settings for `User`."""

    era: Era = Era.RETRY
    network: Stack = ()
    """The networks that requests pass through, outermost first."""
    over: Literal["memory", "http"] = "memory"
    """The transport to server objects."""
    recorder: Recorder | None = None
    """The recorder for legs on roundtrip servers in this process."""
    record_messages: bool = False
    """True to record every JSON-RPC message. Users then connect over HTTP."""
    called_tools: list[str] = field(default_factory=list[str])
    """The tools that the test has called through the networks."""

    @property
    def network_name(self) -> str:
        """Return the network stack's name in test ids."""
        return name_of(self.network)


class CurrentDefaults:
    """The defaults for the running test.

    A process runs one test at a time, but the test may run in any thread or asyncio task. A context variable would not
    work, because the asyncio task that runs asynchronous tests keeps its first fixture's context.
    """

    now = UserDefaults()


CURRENT: Final = CurrentDefaults()


def defaults_for_mark(
    eras: object = "both",
    hostile: object = False,
    without: Iterable[str] = (),
    deploy: Make | None = None,
    secrets: Sequence[str] = (),
    over: Literal["memory", "http"] = "memory",
    **unknown: object,
) -> dict[str, UserDefaults]:
    """Return the defaults for each run of a marked test, by run name. Raise ValueError if an option is invalid."""
    if unknown:
        raise ValueError(f"the mark has no option {', '.join(unknown)}; its options are {', '.join(_MARK_OPTIONS)}")
    selected_eras = _ERAS_BY_NAME.get(eras) if isinstance(eras, str) else None
    if selected_eras is None:
        raise ValueError(f"eras= must be one of {', '.join(map(repr, _ERAS_BY_NAME))}, got {eras!r}")
    if over not in ("memory", "http"):
        raise ValueError(f"over= must be 'memory' or 'http', got {over!r}")
    if hostile is False and (without or deploy is not None or secrets):
        raise ValueError("without=, deploy= and secrets= need hostile=; add hostile=True, or remove them")
    defaults_by_name = {era.name.lower(): UserDefaults(era, over=over) for era in selected_eras}
    # Live calls do not pass through networks, because a live question and its answer share one open connection.
    for era in [era for era in selected_eras if era is not Era.LIVE] or [Era.RETRY]:
        for stack in network_stacks(
            hostile, without=without, deploy=deploy, secrets=secrets, for_tasks=era is Era.TASK
        ):
            name = name_of(stack) if era is Era.RETRY else f"task-{name_of(stack)}"
            same_names = sum(one == name or one.startswith(f"{name}#") for one in defaults_by_name)
            defaults_by_name[f"{name}#{same_names + 1}" if same_names else name] = UserDefaults(era, stack, over=over)
    return defaults_by_name


def network_stacks(
    selection: object,
    *,
    without: Iterable[str] = (),
    deploy: Make | None = None,
    secrets: str | Sequence[str] = (),
    for_tasks: bool = False,
) -> list[Stack]:
    """Return the network stacks that a mark names.

    Args:
        selection: True for all networks, or a list. Each item is a network, a network's name, or a tuple of these that
            forms a stack.
        without: The names of stacks to leave out. A stack's name is its networks' names, joined with `+`.
        deploy: A function that makes an instance of the other build. That instance takes over in the middle of each
            call.
        secrets: Texts that must not be readable in any token.
        for_tasks: Include the task networks if `selection` is True.
    """
    if selection is False or selection is None:
        return []
    if isinstance(without, str):
        raise ValueError(f"without= must be a list of names, got {without!r}; write [{without!r}]")
    if deploy is not None and not callable(deploy):
        raise ValueError(f"deploy= must be a function that makes an instance of the other build, got {deploy!r}")
    if selection is True:
        named = [*NETWORKS, *TASK_NETWORKS] if for_tasks else [*NETWORKS]
        selection = [*named, "deploy"] if deploy is not None else named
    if isinstance(selection, str) or not isinstance(selection, Iterable):
        raise ValueError(f"hostile= must be True, or a list of networks and network names, got {selection!r}")
    stacks = [_stack(one, deploy, secrets) for one in cast("Iterable[object]", selection)]
    left_out = set(without)
    for name in left_out.difference(map(name_of, stacks)):
        _require_known(name)
    return [stack for stack in stacks if name_of(stack) not in left_out]


def stack_of(network: object) -> Stack:
    """Return the stack for `User(network=...)`. The argument is a network, a name, or a list of networks and names."""
    return _stack(tuple(cast("list[object]", network)) if isinstance(network, list) else network, None, ())


def name_of(stack: Stack) -> str:
    """Return the stack's name in test ids."""
    return "+".join(network.name for network in stack)


def _stack(item: object, deploy: Make | None, secrets: str | Sequence[str]) -> Stack:
    parts = cast("tuple[object, ...]", item) if isinstance(item, tuple) else (item,)
    return tuple(_network(part, deploy, secrets) for part in parts)


def _network(part: object, deploy: Make | None, secrets: str | Sequence[str]) -> Network:
    if part == "deploy":
        if deploy is None:
            raise ValueError("the network 'deploy' needs a function that makes the other build: deploy=make_other")
        return Deploy(deploy)
    if isinstance(part, str):
        _require_known(part)
        return Eavesdrop(secrets) if part == "eavesdrop" else _ALL_NETWORKS[part]()
    if isinstance(part, type):
        raise ValueError(f"{part.__name__} is a class; pass an instance: {part.__name__}(...)")
    if not hasattr(part, "carry") or not hasattr(part, "name"):
        raise ValueError(f"{part!r} is not a network: it must have a name and carry(leg, route)")
    return cast("Network", part)


def _require_known(name: str) -> None:
    if name not in _ALL_NETWORKS and name != "deploy":
        raise ValueError(f"there is no network {name!r}; the networks are {', '.join(_ALL_NETWORKS)} and deploy")


@contextmanager
def defaults_for_test(defaults: UserDefaults | None, *, messages: bool, trace: Path | None) -> Generator[UserDefaults]:
    """Set the user defaults for one test until the `with` block ends.

    Args:
        defaults: The defaults from the test's mark, or None.
        messages: True to record every JSON-RPC message, because the test compares them.
        trace: The file for the test's transcript. If it is None, the recorder does not change.
    """
    defaults = defaults or UserDefaults()
    recorder = defaults.recorder if trace is None else Recorder(trace, reveal="all", instance="test")
    # Make a copy, because several runs of a parametrized test may share `defaults`.
    defaults = replace(
        defaults, called_tools=[], record_messages=messages or defaults.record_messages, recorder=recorder
    )
    before, CURRENT.now = CURRENT.now, defaults
    try:
        yield defaults
    finally:
        CURRENT.now = before


Override = Callable[[AnyServer, Mapping[Callable[..., Any], Callable[..., Any]]], None]
"""A function that replaces functions in a server's plans until the test ends."""


@contextmanager
def overriding() -> Generator[Override]:
    """Yield a function that replaces functions in a server's plans until the `with` block ends."""
    with ExitStack() as stack:

        def override(server: AnyServer, replacements: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
            ours = attached(server)
            if ours is None:
                raise TypeError(f"overrides() needs an existing roundtrip server, got {server!r}")
            stack.enter_context(ours.overrides(replacements))

        yield override


class Traces:
    """A test's transcript, in which all values are readable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The transcript file. `roundtrip trace show ID PATH` shows one of its calls."""

    @property
    def calls(self) -> list[TracedCall]:
        """Return all calls so far, in the order in which they began."""
        return list(join(read_files([self.path]).lines).calls.values()) if self.path.exists() else []

    @property
    def call(self) -> TracedCall:
        """Return the only call. Raise AssertionError if there is not exactly one call."""
        calls = self.calls
        if len(calls) != 1:
            raise AssertionError(
                f"{len(calls)} calls were recorded: {', '.join(call.tool for call in calls) or 'none'}"
            )
        return calls[0]
