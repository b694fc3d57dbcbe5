"""Drawings of the machine that every call walks, in every language, all from its table."""

from collections.abc import Callable
from enum import StrEnum

from roundtrip.drawings.machine_svg import machine_svg
from roundtrip.drawings.page import page
from roundtrip.machine.table import ARROWS, FINAL, State

__all__ = ["Format", "draw_machine", "machine_dot", "machine_mermaid", "machine_text"]


class Format(StrEnum):
    """The languages a drawing can be in."""

    MERMAID = "mermaid"
    DOT = "dot"
    TEXT = "text"
    SVG = "svg"
    HTML = "html"


def draw_machine(format: Format) -> str:
    """The machine in one of the languages, without a newline at its end."""
    drawers: dict[Format, Callable[[], str]] = {
        Format.MERMAID: machine_mermaid,
        Format.DOT: machine_dot,
        Format.TEXT: machine_text,
        Format.SVG: lambda: machine_svg(standalone=True),
        Format.HTML: lambda: page("The machine of a call", machine_svg()),
    }
    return drawers[format]()


def machine_mermaid() -> str:
    """The machine as a Mermaid state diagram, without a newline at its end."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.RECEIVED}"]
    lines += [f"    {arrow.source} --> {arrow.target}: {arrow.event}" for arrow in ARROWS]
    lines += [f"    {state} --> [*]" for state in State if state in FINAL]
    return "\n".join(lines)


def machine_dot() -> str:
    """The machine as a Graphviz digraph, without a newline at its end."""
    lines = ["digraph machine {", "    rankdir=LR;", "    node [shape=box, style=rounded];"]
    lines += [f"    {state} [peripheries=2];" for state in State if state in FINAL]
    lines += [f'    {arrow.source} -> {arrow.target} [label="{arrow.event}"];' for arrow in ARROWS]
    return "\n".join([*lines, "}"])


def machine_text() -> str:
    """The machine as a table: each state, and where each event leads from there."""
    state_width = max(len(state) for state in State)
    event_width = max(len(arrow.event) for arrow in ARROWS)
    lines: list[str] = []
    for state in State:
        rows = [f"{arrow.event:<{event_width}} -> {arrow.target}" for arrow in ARROWS if arrow.source is state]
        names = [state.value, *[""] * len(rows)]
        lines += [f"{name:<{state_width}}  {row}" for name, row in zip(names, rows or ["(final)"], strict=False)]
    return "\n".join(lines)
