"""State machine drawings in every format, made from the transition tables."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from roundtrip.machine.table import CALL_MACHINE, Event, MachineTable, State

if TYPE_CHECKING:
    from transitions import Machine


class Format(StrEnum):
    """Drawing formats."""

    MERMAID = "mermaid"
    DOT = "dot"
    TEXT = "text"


Visited = Collection[tuple[State, Event]]
"""The transitions that a call took, as pairs of source state and event."""

# Use no colors, because the page that shows a diagram may be light or dark.
_MERMAID_STYLES: Final = {
    "node": {"active": {"font-weight": "bold", "stroke-width": "4px"}, "default": {"stroke-width": "1px"}}
}


def draw_machine(format: Format, *, visited: Visited = (), current: State | None = None) -> str:
    """Draw the call machine, and mark a call's path and current state. The drawing has no trailing newline."""
    match format:
        case Format.MERMAID:
            return mermaid(CALL_MACHINE, visited=visited, current=current)
        case Format.DOT:
            return _dot(visited, current)
        case Format.TEXT:
            return _text(visited, current)


def mermaid(table: MachineTable[Any, Any], *, visited: Visited = (), current: State | None = None) -> str:
    """Draw a machine as a Mermaid diagram, with the `transitions` package. The drawing has no trailing newline."""
    # lazy: only this format needs it
    from transitions.extensions.diagrams import GraphMachine

    machine: Any = transitions_machine(table, GraphMachine, graph_engine="mermaid")
    machine.machine_attributes, machine.style_attributes = {}, _MERMAID_STYLES
    for source, event in visited:
        for transition in machine.events[event.value].transitions[source.value]:
            transition.label = f"{event.value} (visited)"
    graph = machine.graph_cls(machine)
    if current is not None:
        graph.set_node_style(current.value, "active")
    ends = [f"  {state} --> [*]" for state in table.states if state in table.final]
    # Skip the first three lines, which are a title.
    drawn = [line.rstrip() for line in graph.get_graph().source.splitlines()[3:]]
    return "\n".join([*drawn, *ends])


def transitions_machine(table: MachineTable[Any, Any], kind: type[Machine], **options: Any) -> Machine:
    """Build a `transitions` machine from a table, to draw it or to attach models to it.

    Args:
        table: The table.
        kind: The machine class.
        options: Further arguments for that class.
    """
    arguments: dict[str, Any] = {
        "model": None,
        "states": [state.value for state in table.states],
        "transitions": [
            {"trigger": arrow.event.value, "source": arrow.source.value, "dest": arrow.target.value}
            for arrow in table.arrows
        ],
        "initial": table.states[0].value,
        "auto_transitions": False,
    }
    return kind(**arguments, **options)


def _dot(visited: Visited, current: State | None) -> str:
    """Draw the machine for Graphviz. Do not use `transitions`, because it would need another package and would not show
    the path or the final states.
    """
    lines = ["digraph machine {", "    rankdir=LR;", "    node [shape=box, style=rounded];"]
    lines += [f"    {state} [peripheries=2];" for state in State if state in CALL_MACHINE.final]
    for source, event, target in CALL_MACHINE.arrows:
        width = ", penwidth=3" if (source, event) in visited else ""
        lines.append(f'    {source} -> {target} [label="{event}"{width}];')
    if current is not None:
        lines.append(f'    {current} [style="rounded,bold", penwidth=3];')
    return "\n".join([*lines, "}"])


def _text(visited: Visited, current: State | None) -> str:
    """List each state with its events and targets; `*` marks a call's path."""
    state_width = max(map(len, State))
    event_width = max(map(len, Event))
    lines: list[str] = []
    for state in State:
        rows = [
            f"{event:<{event_width}} -> {target}{' *' if (source, event) in visited else ''}"
            for source, event, target in CALL_MACHINE.arrows
            if source is state
        ] or ["(final)"]
        if state is current:
            rows.append("* the call is here")
        for place, row in enumerate(rows):
            lines.append(f"{'' if place else state:<{state_width}}  {row}")
    return "\n".join(lines)
