"""Provide the defaults of a test's users, from its mark and its fixtures, and the values of fixtures."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, cast

from roundtrip.adapters.finding import AnyServer, attached
from roundtrip.client.legs import ERAS, LIVES, Era
from roundtrip.testing.networks.attacks import Delay, Eavesdrop, Garble, Interleave, Invent, Strip, Swap, Tamper
from roundtrip.testing.networks.carrying import Deploy, Drop, Duplicate, Hop, Reorder, Restart, Rotate
from roundtrip.testing.networks.fleet import Make
from roundtrip.testing.networks.network import Network
from roundtrip.testing.networks.tasks import Abort, Kill, Outage
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import read_files
from roundtrip.trace.writing.recorder import Recorder

Stack = tuple[Network, ...]
"""Networks that requests go through, outermost first."""

_CARRYING: Final = (Hop, Restart, Duplicate, partial(Duplicate, at_once=True), Drop, Reorder, Rotate)
_ATTACKS: Final = (Delay, Tamper, Swap, Strip, Invent, Garble, Interleave, Eavesdrop)
NETWORKS: Final[Mapping[str, Callable[[], Network]]] = {make().name: make for make in (*_CARRYING, *_ATTACKS)}
"""The networks without arguments, by name; `Deploy` needs the other build."""
TASK_NETWORKS: Final[Mapping[str, Callable[[], Network]]] = {make.name: make for make in (Kill, Outage, Abort)}
"""Further networks, for tasks only."""
_ALL_NETWORKS: Final = {**NETWORKS, **TASK_NETWORKS}

_ERAS_BY_NAME: Final = {"retry": (Era.RETRY,), "live": (Era.LIVE,), "both": ERAS, "task": (Era.TASK,), "all": LIVES}
_MARK_OPTIONS: Final = ("eras", "hostile", "without", "deploy", "secrets", "over")


@dataclass(frozen=True, slots=True)
class UserDefaults:
    """Settings that a user has if its constructor gets none."""

    era: Era = Era.RETRY
    network: Stack = ()
    """The networks that requests go through, outermost first."""
    over: Literal["memory", "http"] = "memory"
    """The transport to server objects."""
    recorder: Recorder | None = None
    """Records the legs that roundtrip's servers in this process serve."""
    record_messages: bool = False
    """True if every JSON-RPC message is recorded; users connect over HTTP then."""
    carried: list[str] = field(default_factory=list[str])
    """The tools called through the networks."""

    @property
    def network_name(self) -> str:
        """Return the name of its networks, as in a test's id."""
        return name_of(self.network)


class Chosen:
    """Defaults of the running test.

    A process runs one test at a time, in any thread or asyncio task. A context variable does not work: the asyncio task
    that runs asynchronous tests keeps the context of its first fixture.
    """

    now = UserDefaults()


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
    """Return the defaults of each run of a marked test, by the run's name; raise ValueError for an invalid option."""
    if unknown:
        raise ValueError(f"it has no option {', '.join(unknown)}; its options are {', '.join(_MARK_OPTIONS)}")
    chosen = _ERAS_BY_NAME.get(eras) if isinstance(eras, str) else None
    if chosen is None:
        raise ValueError(f"eras= must be one of {', '.join(map(repr, _ERAS_BY_NAME))}, got {eras!r}")
    if over not in ("memory", "http"):
        raise ValueError(f"over= must be 'memory' or 'http', got {over!r}")
    if hostile is False and (without or deploy is not None or secrets):
        raise ValueError("without=, deploy= and secrets= need hostile=; add hostile=True, or remove them")
    choices = {era.name.lower(): UserDefaults(era, over=over) for era in chosen}
    # In the live era there is no network between a question and its answer.
    for era in [era for era in chosen if era is not Era.LIVE] or [Era.RETRY]:
        for stack in choose(hostile, without=without, deploy=deploy, secrets=secrets, of_tasks=era is Era.TASK):
            name = name_of(stack) if era is Era.RETRY else f"task-{name_of(stack)}"
            alike = sum(one == name or one.startswith(f"{name}#") for one in choices)
            choices[f"{name}#{alike + 1}" if alike else name] = UserDefaults(era, stack, over=over)
    return choices


def choose(
    which: object,
    *,
    without: Iterable[str] = (),
    deploy: Make | None = None,
    secrets: str | Sequence[str] = (),
    of_tasks: bool = False,
) -> list[Stack]:
    """Return the stacks of networks that a mark names.

    Args:
        which: True for all, or a list of names, networks, and tuples of networks to stack.
        without: Names of stacks to leave out; a stack's name joins those of its networks with `+`.
        deploy: Makes an instance of another build, which takes over in the middle of each call.
        secrets: Texts that must not be readable in any token.
        of_tasks: Take the networks for tasks, too, if all are named.
    """
    if which is False or which is None:
        return []
    if isinstance(without, str):
        raise ValueError(f"without= must be a list of names: [{without!r}]")
    if deploy is not None and not callable(deploy):
        raise ValueError("deploy= must be a function that makes an instance of the other build")
    if which is True:
        named = [*NETWORKS, *TASK_NETWORKS] if of_tasks else [*NETWORKS]
        which = [*named, "deploy"] if deploy is not None else named
    if isinstance(which, str) or not isinstance(which, Iterable):
        raise ValueError("hostile= must be True, or a list of networks and their names")
    stacks = [_stack(one, deploy, secrets) for one in cast("Iterable[object]", which)]
    left_out = set(without)
    for name in left_out.difference(map(name_of, stacks)):
        _require(name)
    return [stack for stack in stacks if name_of(stack) not in left_out]


def stack_of(network: object) -> Stack:
    """Return the stack for `User(network=...)`: a network, a name, or several of them, outermost first."""
    return _stack(tuple(cast("list[object]", network)) if isinstance(network, list) else network, None, ())


def name_of(stack: Stack) -> str:
    """Return the stack's name in the ids of tests."""
    return "+".join(network.name for network in stack)


def _stack(one: object, deploy: Make | None, secrets: str | Sequence[str]) -> Stack:
    parts = cast("tuple[object, ...]", one) if isinstance(one, tuple) else (one,)
    return tuple(_network(part, deploy, secrets) for part in parts)


def _network(part: object, deploy: Make | None, secrets: str | Sequence[str]) -> Network:
    if part == "deploy":
        if deploy is None:
            raise ValueError("'deploy' takes a function that makes the other build: deploy=make_other")
        return Deploy(deploy)
    if isinstance(part, str):
        _require(part)
        return Eavesdrop(secrets) if part == "eavesdrop" else _ALL_NETWORKS[part]()
    if isinstance(part, type):
        raise ValueError(f"{part.__name__} is a class; pass an instance of it: {part.__name__}(...)")
    if not hasattr(part, "carry") or not hasattr(part, "name"):
        raise ValueError(f"{part!r} is not a network: it must have a name and carry(leg, route)")
    return cast("Network", part)


def _require(name: str) -> None:
    if name not in _ALL_NETWORKS and name != "deploy":
        raise ValueError(f"there is no network {name!r}; the networks are {', '.join(_ALL_NETWORKS)} and deploy")


@contextmanager
def chosen_for_test(choice: UserDefaults | None, *, messages: bool, trace: Path | None) -> Generator[UserDefaults]:
    """Use a choice for one test, inside a `with` block.

    Args:
        choice: The choice of the mark, if the test has one.
        messages: True to record every JSON-RPC message, because the test compares them.
        trace: The file of the test's transcript.
    """
    choice = choice or UserDefaults()
    recorder = choice.recorder if trace is None else Recorder(trace, reveal="all", instance="test")
    # Several tests, with other parameters, may share a choice.
    choice = replace(choice, carried=[], record_messages=messages or choice.record_messages, recorder=recorder)
    before, CHOSEN.now = CHOSEN.now, choice
    try:
        yield choice
    finally:
        CHOSEN.now = before


Override = Callable[[AnyServer, Mapping[Callable[..., Any], Callable[..., Any]]], None]
"""Replaces functions in the graph of one server until the test ends."""


@contextmanager
def overriding() -> Generator[Override]:
    """Yield a function that replaces functions of servers until the `with` block ends."""
    with ExitStack() as stack:

        def override(server: AnyServer, replacements: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
            ours = attached(server)
            if ours is None:
                raise TypeError(f"overrides() takes a roundtrip server that has been made, not {server!r}")
            stack.enter_context(ours.overrides(replacements))

        yield override


class Traces:
    """The transcript of a test's calls, with all values revealed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The transcript's file: `roundtrip trace show ID PATH` shows a call of it."""

    @property
    def calls(self) -> list[TracedCall]:
        """Return all calls so far, in the order in which they began."""
        return list(join(read_files([self.path]).lines).calls.values()) if self.path.exists() else []

    @property
    def call(self) -> TracedCall:
        """Return the only call; raises AssertionError if there are none, or several."""
        calls = self.calls
        if len(calls) != 1:
            raise AssertionError(
                f"{len(calls)} calls were recorded: {', '.join(call.tool for call in calls) or 'none'}"
            )
        return calls[0]
