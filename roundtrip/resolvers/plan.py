"""The plan of a tool, as values: which functions fill its parameters, in which order, under which names.

A plan is a list of nodes in which each comes after all it needs. `planner.py` makes it, once, at registration; a leg
walks it (see `walk.py`).
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pydantic import TypeAdapter

__all__ = ["EMPTY", "Input", "Node", "Plan", "Source"]


class Source(Enum):
    """Where a node's parameter gets its value."""

    CONTEXT = "context"
    ARGUMENT = "argument"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Input:
    """One parameter of a node, or of the tool itself, and what fills it.

    `name` is the argument's name for ARGUMENT. `outcome` says that the consumer wants the outcome, not the value.
    """

    parameter: str
    source: Source
    name: str = ""
    node: int = -1
    outcome: bool = False
    positional: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One function of the graph. `index` is its place in the plan; what it needs comes before it."""

    index: int
    who: Hashable
    """What makes it the same node in another plan of the same request."""
    fn: Callable[..., Any]
    label: str
    key: str
    bare_key: str
    was: tuple[str, ...]
    names: tuple[str, ...]
    """Its key, then its former ones: under any of them an answer may be on its way."""
    once: bool
    is_async: bool
    enters: bool
    """Whether what it makes is entered before what needs it runs, and left when the leg ends."""
    inputs: tuple[Input, ...]
    needs: tuple[int, ...]
    dependents: tuple[int, ...]
    path: str
    consumer: str | None
    """The first parameter that takes its bare value: what a declined question is reported for."""
    computed: TypeAdapter[Any] | None
    """Turns a value into JSON and back, for `once`."""
    asked: Any
    """The schema or result type that its annotation says it asks for, for `once`."""
    asks_page: bool = False
    """Whether its annotation says that it sends the user to a page; `asked` is what that yields."""
    must_ask: bool = False
    """True if its annotation names questions alone, and its parameter does not take None."""

    @property
    def shared_as(self) -> Hashable:
        """By what its value is known in other plans of the same request."""
        # What is entered is another value than what is not.
        return (self.who, self.enters)


@dataclass(frozen=True, slots=True)
class Plan:
    """All nodes of one tool, and which of them fill its own parameters."""

    owner: str
    nodes: tuple[Node, ...]
    roots: tuple[Input, ...]
    fingerprint: str
    names: Mapping[str, int]
    """Every name a node answers to (its key and its former keys)."""
    bare_names: Mapping[str, tuple[int, ...]]
    steady: list[bool]
    """Per node, whether it has so far finished without ever waiting. Advice: a wrong entry costs time only."""
    functions: Mapping[Hashable, Callable[..., Any]]
    """Every function that was asked for, by what identifies it, whatever runs in its place."""
    enters: bool
    """Whether a leg has something to leave when it ends."""

    def downstream(self, index: int) -> tuple[int, ...]:
        """The nodes that need a node, directly or through others."""
        found: set[int] = set()
        for node in self.nodes[index + 1 :]:
            if not found.isdisjoint(node.needs) or index in node.needs:
                found.add(node.index)
        return tuple(sorted(found))

    @property
    def seals(self) -> bool:
        """Whether a call may have to carry something the client must not read."""
        return any(node.once for node in self.nodes)


EMPTY: Final = Plan("", (), (), "", {}, {}, [], {}, enters=False)
