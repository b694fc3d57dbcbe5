"""Plans: the functions that fill a tool's parameters, the order in which they run, and their names.

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


# These classes are named tuples, because on each import a frozen dataclass takes five times as long to define.
class Input(NamedTuple):
    """One parameter of a node or the tool, and the source that fills it.

    If the source is ARGUMENT, `name` is the argument's name. `outcome` is True if the consumer takes the outcome
    instead of the value.
    """

    parameter: str
    source: Source
    name: str = ""
    node: int = -1
    outcome: bool = False
    positional: bool = False


class Node(NamedTuple):
    """One function in a plan. `index` is its position in the plan; the nodes that it needs come before it."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    who: Hashable
    """A key that identifies the node across the plans for one request."""
    fn: Callable[..., Any]
    label: str
    key: str
    bare_key: str
    """The node's key without its path. The path distinguishes nodes with the same name."""
    names: tuple[str, ...]
    """The node's key, then its former keys. A call in flight may have stored the answer under any of them."""
    remember: bool
    is_async: bool
    """True for a coroutine function, and for a function that makes an async context manager."""
    enters: bool
    """True if the function makes a context manager, which is entered before its consumers run and exited when the leg
    ends.
    """
    inputs: tuple[Input, ...]
    needs: tuple[int, ...]
    dependents: tuple[int, ...]
    consumer: str | None
    """The first parameter that takes the node's bare value. If the user declines the question, the message names this
    parameter.
    """
    computed: TypeAdapter[Any] | None
    """For `remember`: converts the node's value to JSON and back."""
    asked: Any
    """For `remember`: the schema or result type of the question that the node's annotation names."""
    asks_page: bool = False
    """True if the node's annotation names a question that sends the user to a page. `asked` is then the type of the
    page's value.
    """
    must_ask: bool = False
    """True if the node's annotation names only questions, and its parameter does not take None."""
    inline: bool = False
    """True for a plain function that runs on the event loop."""

    @property
    def shared_as(self) -> Hashable:
        """Return the key under which other plans for the same request find the node's value."""
        # Consumers of an entered context manager get the value that it yields; other consumers get the manager itself.
        return (self.who, self.enters)


class Plan(NamedTuple):
    """One tool's nodes. `roots` are the tool's parameters that nodes fill."""

    nodes: tuple[Node, ...]
    roots: tuple[Input, ...]
    fingerprint: str
    names: Mapping[str, int]
    """Maps each key and each former key to its node's index."""
    never_suspended: list[bool]
    """For each node, True if it has never suspended so far. A wrong entry costs only time."""
    functions: Mapping[Hashable, Callable[..., Any]]
    """Every function that fills a parameter, keyed by its identity. Functions that a test has replaced are included."""
    enters: bool
    """True if a leg may have context managers to exit when it ends."""
    may_carry_secrets: bool = False
    """True if a call's token may have to carry a value that the client must not read."""
    lanes: tuple[int | None, ...] = ()
    """For each node that runs in a thread, its lane. Nodes in one lane depend on each other and share a thread."""
    home: int | None = None
    """The lane whose thread runs a plain body: the first lane among the body's parameters."""

    def downstream(self, index: int) -> tuple[int, ...]:
        """Return the nodes that need this node, directly or through other nodes."""
        found: set[int] = set()
        for node in self.nodes[index + 1 :]:
            if not found.isdisjoint(node.needs) or index in node.needs:
                found.add(node.index)
        return tuple(sorted(found))


EMPTY: Final = Plan((), (), "", {}, [], {}, enters=False)
