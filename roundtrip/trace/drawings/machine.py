"""Draw the state machines of roundtrip in every format, from their tables."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from roundtrip.machine.table import CALL_MACHINE, CallArrow, Event, MachineTable, State
from roundtrip.trace.drawings.machine_svg import machine_svg
from roundtrip.trace.drawings.page import page

__all__ = ["CallPath", "Format", "draw_machine", "mermaid"]


class Format(StrEnum):
    """Formats of drawings."""

    MERMAID = "mermaid"
    DOT = "dot"
    TEXT = "text"
    SVG = "svg"
    HTML = "html"


@dataclass(frozen=True, slots=True)
class CallPath:
    """Path of a call through the machine: the arrows it took, and its state."""

    visited: Collection[tuple[State, Event]] = ()
    current: State | None = None

    def took(self, arrow: CallArrow) -> bool:
        """Return True if the call took an arrow."""
        return (arrow.source, arrow.event) in self.visited


_NO_PATH: Final = CallPath()
# No colors: a page may be light or dark.
_MERMAID_STYLES: Final = {
    "node": {"active": {"font-weight": "bold", "stroke-width": "4px"}, "default": {"stroke-width": "1px"}}
}


def draw_machine(format: Format, path: CallPath = _NO_PATH, *, title: str = "The machine of a call") -> str:
    """Draw the machine of a call with a path marked, without a newline at the end."""
    visited, current = path.visited, path.current
    drawers: dict[Format, Callable[[], str]] = {
        Format.MERMAID: lambda: mermaid(CALL_MACHINE, visited=visited, current=current),
        Format.DOT: lambda: _dot(path),
        Format.TEXT: lambda: _text(path),
        Format.SVG: lambda: machine_svg(visited=visited, current=current, standalone=True),
        Format.HTML: lambda: page(title, machine_svg(visited=visited, current=current)),
    }
    return drawers[format]()


def mermaid(
    table: MachineTable[Any, Any],
    *,
    visited: Collection[tuple[StrEnum, StrEnum]] = (),
    current: StrEnum | None = None,
) -> str:
    """Draw a machine as the Mermaid diagram of `transitions`, without a newline at the end."""
    # Not at the top: only this format needs it.
    from transitions.extensions.diagrams import GraphMachine

    machine: Any = table.machine(GraphMachine, graph_engine="mermaid")
    machine.machine_attributes, machine.style_attributes = {}, _MERMAID_STYLES
    for source, event in visited:
        for transition in machine.events[event.value].transitions[source.value]:
            transition.label = f"{event.value} (visited)"
    graph = machine.graph_cls(machine)
    if current is not None:
        graph.set_node_style(current.value, "active")
    ends = [f"  {state} --> [*]" for state in table.states if state in table.final]
    # The first three lines are a title.
    drawn = [line.rstrip() for line in graph.get_graph().source.splitlines()[3:]]
    return "\n".join([*drawn, *ends])


def _dot(path: CallPath) -> str:
    """Draw the machine for Graphviz; `transitions` needs a package for it, and leaves out paths and final states."""
    lines = ["digraph machine {", "    rankdir=LR;", "    node [shape=box, style=rounded];"]
    lines += [f"    {state} [peripheries=2];" for state in State if state in CALL_MACHINE.final]
    lines += [
        f'    {arrow.source} -> {arrow.target} [label="{arrow.event}"{", penwidth=3" if path.took(arrow) else ""}];'
        for arrow in CALL_MACHINE.arrows
    ]
    if path.current is not None:
        lines.append(f'    {path.current} [style="rounded,bold", penwidth=3];')
    return "\n".join([*lines, "}"])


def _text(path: CallPath) -> str:
    """Draw the machine as a list of the events and targets of each state; `*` marks the path of a call."""
    state_width = max(len(state) for state in State)
    event_width = max(len(arrow.event) for arrow in CALL_MACHINE.arrows)
    lines: list[str] = []
    for state in State:
        rows = [
            f"{arrow.event:<{event_width}} -> {arrow.target}{' *' if path.took(arrow) else ''}"
            for arrow in CALL_MACHINE.arrows
            if arrow.source is state
        ]
        if state is path.current:
            rows = [*(rows or ["(final)"]), "* the call is here"]
        names = [state.value, *[""] * len(rows)]
        lines += [f"{name:<{state_width}}  {row}" for name, row in zip(names, rows or ["(final)"], strict=False)]
    return "\n".join(lines)
