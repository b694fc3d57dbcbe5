"""Drawings of a tool's dependencies, in every format. They are made from the plans with which the server serves calls.

Several tools share one drawing, with a frame around each tool, so the output is always one valid document.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from roundtrip.approvals.markers import Approve
from roundtrip.questions.markers import SdkElicit, SdkListRoots, SdkSample
from roundtrip.resolvers.plan import Input, Node, Plan, Source
from roundtrip.trace.drawings.machine import Format


class BoxKind(Enum):
    """Box kind, which determines the shape."""

    TOOL = "tool"
    VALUE = "value"
    QUESTION = "question"
    ARGUMENT = "argument"
    CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class Box:
    """A box in a drawing: the tool, or a source of parameter values."""

    id: str
    kind: BoxKind
    name: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line from `source` to `target`, for the parameter that gets its value from `source`."""

    source: Box
    target: Box
    parameter: str
    outcome: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """One tool's graph, for every drawing format."""

    tool: str
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def _graph(tool: str, plan: Plan, prefix: str) -> Graph:
    root = Box(prefix, BoxKind.TOOL, tool)
    nodes = [_node(node, prefix) for node in plan.nodes]
    arguments: dict[str, Box] = {}

    def source_of(entry: Input) -> Box:
        if entry.source is Source.NODE:
            return nodes[entry.node]
        if entry.source is Source.CONTEXT:
            return Box(f"{prefix}_context", BoxKind.CONTEXT, "Context")
        # An alias may contain any character, so the id is a number.
        box = Box(f"{prefix}_a{len(arguments)}", BoxKind.ARGUMENT, entry.name, "argument")
        return arguments.setdefault(entry.name, box)

    boxes = {root: None}
    lines: list[Line] = []
    for target, inputs in [*((nodes[node.index], node.inputs) for node in plan.nodes), (root, plan.roots)]:
        drawn = [Line(source_of(entry), target, entry.parameter, entry.outcome) for entry in inputs]
        boxes |= dict.fromkeys([target, *(line.source for line in drawn)])
        lines += drawn
    return Graph(tool, tuple(boxes), tuple(lines))


def _node(node: Node, prefix: str) -> Box:
    asking = _question_text(node)
    remarks = [node.label if node.label != node.key else None, asking, "once per call" if node.remember else None]
    kind = BoxKind.VALUE if asking is None else BoxKind.QUESTION
    return Box(f"{prefix}_n{node.index}", kind, node.key, ", ".join(filter(None, remarks)))


def _question_text(node: Node) -> str | None:
    asked = node.asked
    if node.asks_page:
        return "sends the user to a page"
    if asked is None:
        return None
    if not isinstance(asked, type):
        # Do not list the choices, because the text would be too long.
        return "asks the user"
    if issubclass(asked, SdkSample):
        return "asks the client's model"
    if issubclass(asked, SdkListRoots):
        return "asks for the client's roots"
    if issubclass(asked, Approve):
        return "asks a group to approve"
    return "asks the user" if issubclass(asked, SdkElicit) else f"asks the user for {asked.__name__}"


def draw_plans(plans: Mapping[str, Plan], format: Format) -> str:
    """Draw one or more plans, by tool name, in a single drawing without a trailing newline."""
    graphs = [_graph(tool, plan, f"t{place}") for place, (tool, plan) in enumerate(plans.items())]
    match format:
        case Format.MERMAID:
            return "\n".join(["flowchart LR", *_draw_graphs(graphs, _mermaid_frame, _mermaid_box, _mermaid_line)])
        case Format.DOT:
            drawn = _draw_graphs(graphs, _dot_frame, _dot_box, _dot_line)
            return "\n".join(["digraph tools {", "    rankdir=LR;", *drawn, "}"])
        case Format.TEXT:
            return "\n\n".join(map(_text, graphs))


def _draw_graphs(
    graphs: list[Graph],
    frame: Callable[[Graph, list[str]], list[str]],
    draw_box: Callable[[Box], str],
    draw_line: Callable[[Line], str],
) -> Iterator[str]:
    """Yield indented lines for one or more graphs. If there are several, each has a frame."""
    for graph in graphs:
        body = [*map(draw_box, graph.boxes), *map(draw_line, graph.lines)]
        framed = frame(graph, [f"    {line}" for line in body]) if len(graphs) > 1 else body
        yield from (f"    {line}" for line in framed)


# Mermaid and DOT.

_SHAPES: Final = {
    BoxKind.TOOL: ("[[", "]]", "box3d"),
    BoxKind.VALUE: ("[", "]", "box"),
    BoxKind.QUESTION: ("{{", "}}", "hexagon"),
    BoxKind.ARGUMENT: ("([", "])", "ellipse"),
    BoxKind.CONTEXT: ("([", "])", "ellipse"),
}
"""For each box kind: Mermaid's delimiters around the box's text, and the DOT shape."""


def _mermaid_frame(graph: Graph, body: list[str]) -> list[str]:
    return [f'subgraph {graph.boxes[0].id}_frame["{_mermaid_quote(graph.tool)}"]', *body, "end"]


def _mermaid_box(box: Box) -> str:
    before, after, _ = _SHAPES[box.kind]
    remark = f"<br/>{_mermaid_quote(box.remark)}" if box.remark else ""
    return f'{box.id}{before}"{_mermaid_quote(box.name)}{remark}"{after}'


def _mermaid_line(line: Line) -> str:
    arrow, remark = ("-.->", " (outcome)") if line.outcome else ("-->", "")
    return f'{line.source.id} {arrow}|"{line.parameter}{remark}"| {line.target.id}'


def _mermaid_quote(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def _dot_frame(graph: Graph, body: list[str]) -> list[str]:
    return [f"subgraph cluster_{graph.boxes[0].id} {{", f"    label={_dot_quote(graph.tool)};", *body, "}"]


def _dot_box(box: Box) -> str:
    label = f"{box.name}\n{box.remark}" if box.remark else box.name
    return f"{box.id} [label={_dot_quote(label)}, shape={_SHAPES[box.kind][2]}];"


def _dot_line(line: Line) -> str:
    remark, style = (" (outcome)", ", style=dashed") if line.outcome else ("", "")
    return f"{line.source.id} -> {line.target.id} [label={_dot_quote(line.parameter + remark)}{style}];"


def _dot_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# Text.


def _text(graph: Graph) -> str:
    """List the tool and its dependencies, each with its parameters and their sources."""
    width = max((len(line.parameter) for line in graph.lines), default=0)
    lines: list[str] = []
    for box in graph.boxes:
        if box.kind in (BoxKind.ARGUMENT, BoxKind.CONTEXT):
            continue
        lines.append(f"{box.name}: {box.remark}" if box.remark else box.name)
        filled = [line for line in graph.lines if line.target == box]
        lines += [f"    {line.parameter:<{width}} <- {_text_source(line)}" for line in filled]
        if box.kind is BoxKind.TOOL and not filled:
            lines.append("    (no resolver fills a parameter)")
    return "\n".join(lines)


def _text_source(line: Line) -> str:
    is_argument = line.source.kind is BoxKind.ARGUMENT
    return f"{line.source.name}{' (argument)' if is_argument else ' (outcome)' if line.outcome else ''}"
