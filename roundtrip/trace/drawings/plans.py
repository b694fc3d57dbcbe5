"""Draw the dependency graphs of tools in every format, from the plans that serve calls.

Several tools make one drawing with a frame around each, so the output is always one valid document.
"""

from collections.abc import Mapping

from roundtrip.resolvers.plan import Plan
from roundtrip.trace.drawings.graphs import Box, BoxKind, Graph, Line, graphs_of
from roundtrip.trace.drawings.machine import Format

__all__ = ["draw_plans"]


def draw_plans(plans: Mapping[str, Plan], format: Format) -> str:
    """Draw the plans of tools, by their names, as one drawing without a newline at its end."""
    graphs = graphs_of(plans)
    match format:
        case Format.MERMAID:
            return _mermaid(graphs)
        case Format.DOT:
            return _dot(graphs)
        case Format.TEXT:
            return "\n\n".join(map(_text, graphs))


# Mermaid.

_MERMAID_SHAPES = {
    BoxKind.TOOL: ("[[", "]]"),
    BoxKind.VALUE: ("[", "]"),
    BoxKind.QUESTION: ("{{", "}}"),
    BoxKind.ARGUMENT: ("([", "])"),
    BoxKind.CONTEXT: ("([", "])"),
}


def _mermaid(graphs: list[Graph]) -> str:
    drawing = ["flowchart LR"]
    framed = len(graphs) > 1
    for graph in graphs:
        body = [*map(_mermaid_box, graph.boxes), *map(_mermaid_line, graph.lines)]
        if framed:
            frame = f'subgraph {graph.boxes[0].id}_frame["{_mermaid_quote(graph.tool)}"]'
            body = [frame, *(f"    {line}" for line in body), "end"]
        drawing += [f"    {line}" for line in body]
    return "\n".join(drawing)


def _mermaid_box(box: Box) -> str:
    before, after = _MERMAID_SHAPES[box.kind]
    remark = f"<br/>{_mermaid_quote(box.remark)}" if box.remark else ""
    return f'{box.id}{before}"{_mermaid_quote(box.name)}{remark}"{after}'


def _mermaid_line(line: Line) -> str:
    arrow, remark = ("-.->", " (outcome)") if line.outcome else ("-->", "")
    return f'{line.source} {arrow}|"{line.parameter}{remark}"| {line.target}'


def _mermaid_quote(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


# DOT.

_DOT_SHAPES = {
    BoxKind.TOOL: "box3d",
    BoxKind.VALUE: "box",
    BoxKind.QUESTION: "hexagon",
    BoxKind.ARGUMENT: "ellipse",
    BoxKind.CONTEXT: "ellipse",
}


def _dot(graphs: list[Graph]) -> str:
    drawing = ["digraph tools {", "    rankdir=LR;"]
    framed = len(graphs) > 1
    for graph in graphs:
        body = [*map(_dot_box, graph.boxes), *map(_dot_line, graph.lines)]
        if framed:
            frame = [f"subgraph cluster_{graph.boxes[0].id} {{", f"    label={_dot_quote(graph.tool)};"]
            body = [*frame, *(f"    {line}" for line in body), "}"]
        drawing += [f"    {line}" for line in body]
    return "\n".join([*drawing, "}"])


def _dot_box(box: Box) -> str:
    label = f"{box.name}\n{box.remark}" if box.remark else box.name
    return f"{box.id} [label={_dot_quote(label)}, shape={_DOT_SHAPES[box.kind]}];"


def _dot_line(line: Line) -> str:
    remark, style = (" (outcome)", ", style=dashed") if line.outcome else ("", "")
    return f"{line.source} -> {line.target} [label={_dot_quote(line.parameter + remark)}{style}];"


def _dot_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# Text.


def _text(graph: Graph) -> str:
    """List the tool and then its dependencies, each with its parameters and their sources."""
    boxes = {box.id: box for box in graph.boxes}
    width = max((len(line.parameter) for line in graph.lines), default=0)
    lines: list[str] = []
    for box in graph.boxes:
        if box.kind in (BoxKind.ARGUMENT, BoxKind.CONTEXT):
            continue
        lines.append(f"{box.name}: {box.remark}" if box.remark else box.name)
        filled = [line for line in graph.lines if line.target == box.id]
        lines += [f"    {line.parameter:<{width}} <- {_text_source(boxes[line.source], line)}" for line in filled]
        if box.kind is BoxKind.TOOL and not filled:
            lines.append("    (no parameter is filled by a resolver)")
    return "\n".join(lines)


def _text_source(box: Box, line: Line) -> str:
    remark = " (argument)" if box.kind is BoxKind.ARGUMENT else " (outcome)" if line.outcome else ""
    return f"{box.name}{remark}"
