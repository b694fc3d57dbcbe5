"""Plans: the functions that fill a tool's parameters, their order and their names.

In a plan, each node comes after the nodes that it needs. `planner` makes a plan once, at registration, and a
`Scheduler` runs it on each leg.
"""

from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter


class Source(Enum):
    """Source of a parameter's value."""

    CONTEXT = "context"
    ARGUMENT = "argument"
    NODE = "node"


# Named tuples, because defining a frozen dataclass takes five times as long, at every start.
class Input(NamedTuple):
    """One parameter of a node or the tool, and the source that fills it.

    `name` is the argument's name for ARGUMENT. `outcome` is True if the consumer takes the outcome, not the value.
    """

    parameter: str
    source: Source
    name: str = ""
    node: int = -1
    outcome: bool = False
    positional: bool = False


class Node(NamedTuple):
    """One function in a plan. `index` is its position; the nodes that it needs come before it."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    who: Hashable
    """Identifies the same node in another plan for the same request."""
    fn: Callable[..., Any]
    label: str
    key: str
    bare_key: str
    """Its key without the path that distinguishes it from other nodes with the same name."""
    names: tuple[str, ...]
    """Its key, then its former keys. An answer in flight may have any of them."""
    remember: bool
    is_async: bool
    """True for a coroutine function, or one whose context manager is async."""
    enters: bool
    """True for a context manager, entered before its consumers run and exited when the leg ends."""
    inputs: tuple[Input, ...]
    needs: tuple[int, ...]
    dependents: tuple[int, ...]
    consumer: str | None
    """The first parameter that takes its bare value. The message about a declined question names it."""
    computed: TypeAdapter[Any] | None
    """Turns a value into JSON and back, for `remember`."""
    asked: Any
    """The schema or result type of the question in its annotation, for `remember`."""
    asks_page: bool = False
    """True if its annotation says that it sends the user to a page; `asked` is the page value's type."""
    must_ask: bool = False
    """True if its annotation has only question types, and its parameter does not take None."""
    inline: bool = False
    """True for a plain function that runs on the event loop."""

    @property
    def shared_as(self) -> Hashable:
        """Return its value's key in other plans for the same request."""
        # Consumers of an entered context manager get the value that it yields; others get the manager itself.
        return (self.who, self.enters)


class Plan(NamedTuple):
    """One tool's nodes; `roots` are the tool's parameters."""

    nodes: tuple[Node, ...]
    roots: tuple[Input, ...]
    fingerprint: str
    names: Mapping[str, int]
    """Each key and former key, with its node's index."""
    never_suspended: list[bool]
    """For each node, True if it has so far finished without suspending. A wrong entry only costs time."""
    functions: Mapping[Hashable, Callable[..., Any]]
    """Every function that fills a parameter, by its identity, including functions that a test has replaced."""
    enters: bool
    """True if a leg has a context manager to exit when it ends."""
    may_carry_secrets: bool = False
    """True if a call may have to carry a value that the client must not read."""
    lanes: tuple[int | None, ...] = ()
    """For each node that runs in a thread, its lane. Functions in one lane depend on each other, and share a thread."""
    home: int | None = None
    """The lane whose thread runs a plain body: that of its first parameter that has one."""

    def downstream(self, index: int) -> tuple[int, ...]:
        """Return the nodes that need a node, directly or through others."""
        found: set[int] = set()
        for node in self.nodes[index + 1 :]:
            if not found.isdisjoint(node.needs) or index in node.needs:
                found.add(node.index)
        return tuple(sorted(found))


EMPTY: Final = Plan((), (), "", {}, [], {}, enters=False)
