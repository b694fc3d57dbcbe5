"""Drawings of the machine that every call walks, in every language, all from its table."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from roundtrip.machine.table import ARROWS, FINAL, Arrow, Event, State
from roundtrip.trace.drawings.machine_svg import machine_svg
from roundtrip.trace.drawings.page import page

__all__ = ["CallPath", "Format", "draw_machine", "machine_dot", "machine_mermaid", "machine_text"]


class Format(StrEnum):
    """The languages a drawing can be in."""

    MERMAID = "mermaid"
    DOT = "dot"
    TEXT = "text"
    SVG = "svg"
    HTML = "html"


@dataclass(frozen=True, slots=True)
class CallPath:
    """How far a call has come: the arrows it went along, and the state it is in."""

    visited: Collection[tuple[State, Event]] = ()
    current: State | None = None

    def went(self, arrow: Arrow) -> bool:
        """Whether it went along an arrow."""
        return (arrow.source, arrow.event) in self.visited


NO_JOURNEY: Final = CallPath()


def draw_machine(format: Format, journey: CallPath = NO_JOURNEY, *, title: str = "The machine of a call") -> str:
    """The machine in one of the languages, without a newline at its end, with the way of a call marked."""
    visited, current = journey.visited, journey.current
    drawers: dict[Format, Callable[[], str]] = {
        Format.MERMAID: lambda: machine_mermaid(journey),
        Format.DOT: lambda: machine_dot(journey),
        Format.TEXT: lambda: machine_text(journey),
        Format.SVG: lambda: machine_svg(visited=visited, current=current, standalone=True),
        Format.HTML: lambda: page(title, machine_svg(visited=visited, current=current)),
    }
    return drawers[format]()


def machine_mermaid(journey: CallPath = NO_JOURNEY) -> str:
    """The machine as a Mermaid state diagram, without a newline at its end."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.RECEIVED}"]
    lines += [
        f"    {arrow.source} --> {arrow.target}: {arrow.event}{' (visited)' if journey.went(arrow) else ''}"
        for arrow in ARROWS
    ]
    lines += [f"    {state} --> [*]" for state in State if state in FINAL]
    if journey.current is not None:
        lines += ["    classDef current font-weight:bold,stroke-width:4px", f"    class {journey.current} current"]
    return "\n".join(lines)


def machine_dot(journey: CallPath = NO_JOURNEY) -> str:
    """The machine as a Graphviz digraph, without a newline at its end."""
    lines = ["digraph machine {", "    rankdir=LR;", "    node [shape=box, style=rounded];"]
    lines += [f"    {state} [peripheries=2];" for state in State if state in FINAL]
    lines += [
        f'    {arrow.source} -> {arrow.target} [label="{arrow.event}"{", penwidth=3" if journey.went(arrow) else ""}];'
        for arrow in ARROWS
    ]
    if journey.current is not None:
        lines.append(f'    {journey.current} [style="rounded,bold", penwidth=3];')
    return "\n".join([*lines, "}"])


def machine_text(journey: CallPath = NO_JOURNEY) -> str:
    """The machine as a table: each state, and where each event leads from there; `*` marks the way of a call."""
    state_width = max(len(state) for state in State)
    event_width = max(len(arrow.event) for arrow in ARROWS)
    lines: list[str] = []
    for state in State:
        rows = [
            f"{arrow.event:<{event_width}} -> {arrow.target}{' *' if journey.went(arrow) else ''}"
            for arrow in ARROWS
            if arrow.source is state
        ]
        if state is journey.current:
            rows = [*(rows or ["(final)"]), "* the call is here"]
        names = [state.value, *[""] * len(rows)]
        lines += [f"{name:<{state_width}}  {row}" for name, row in zip(names, rows or ["(final)"], strict=False)]
    return "\n".join(lines)
