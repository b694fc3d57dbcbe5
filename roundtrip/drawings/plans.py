"""Drawings of tools' dependency graphs: Mermaid, DOT and text, all from the plans that calls are served by.

Several tools make one drawing, with a frame around each, so that what is printed is always one valid document.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from roundtrip.asks.markers import SdkElicit, SdkListRoots, SdkSample
from roundtrip.drawings.machine import Format
from roundtrip.graph.plan import Input, Node, Plan, Source

__all__ = ["draw_plans"]


class _Kind(Enum):
    """What a box stands for; each kind has a shape of its own."""

    TOOL = "tool"
    VALUE = "value"
    QUESTION = "question"
    ARGUMENT = "argument"
    CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class _Box:
    """Something that fills parameters, or the tool whose parameters are filled."""

    id: str
    kind: _Kind
    name: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class _Line:
    """A parameter of `target` that `source` fills."""

    source: str
    target: str
    parameter: str
    outcome: bool = False


@dataclass(frozen=True, slots=True)
class _Graph:
    """One tool's drawing, before it has a language."""

    tool: str
    boxes: tuple[_Box, ...]
    lines: tuple[_Line, ...]


def draw_plans(plans: Mapping[str, Plan], format: Format) -> str:
    """The graphs of some tools by their names, as one drawing without a newline at its end."""
    graphs = [_graph(tool, plan, f"t{place}") for place, (tool, plan) in enumerate(plans.items())]
    drawers = {Format.MERMAID: _mermaid, Format.DOT: _dot, Format.TEXT: _text}
    return drawers[format](graphs)


def _graph(tool: str, plan: Plan, prefix: str) -> _Graph:
    boxes = {prefix: _Box(prefix, _Kind.TOOL, tool)}
    lines: list[_Line] = []
    arguments: dict[str, _Box] = {}

    def source_of(entry: Input) -> str:
        if entry.source is Source.NODE:
            return f"{prefix}_n{entry.node}"
        if entry.source is Source.CONTEXT:
            box = _Box(f"{prefix}_context", _Kind.CONTEXT, "Context")
        else:
            # An alias may hold any character, so its number is the id.
            box = _Box(f"{prefix}_a{len(arguments)}", _Kind.ARGUMENT, entry.name, "argument")
            box = arguments.setdefault(entry.name, box)
        boxes.setdefault(box.id, box)
        return box.id

    def connect(target: str, entry: Input) -> None:
        lines.append(_Line(source_of(entry), target, entry.parameter, entry.outcome))

    for node in plan.nodes:
        box = _node(node, prefix)
        boxes[box.id] = box
        for entry in node.inputs:
            connect(box.id, entry)
    for entry in plan.roots:
        connect(prefix, entry)
    return _Graph(tool, tuple(boxes.values()), tuple(lines))


def _node(node: Node, prefix: str) -> _Box:
    remarks = [] if node.key == node.label else [node.label]
    if node.asked is not None:
        remarks.append(_asking(node.asked))
    if node.once:
        remarks.append("once per call")
    kind = _Kind.VALUE if node.asked is None else _Kind.QUESTION
    return _Box(f"{prefix}_n{node.index}", kind, node.key, ", ".join(remarks))


def _asking(asked: type) -> str:
    if issubclass(asked, SdkSample):
        return "asks the client's model"
    if issubclass(asked, SdkListRoots):
        return "asks for the client's roots"
    if issubclass(asked, SdkElicit):
        return "asks the user"
    return f"asks the user for {asked.__name__}"


# Mermaid.

_MERMAID_SHAPES = {
    _Kind.TOOL: ("[[", "]]"),
    _Kind.VALUE: ("[", "]"),
    _Kind.QUESTION: ("{{", "}}"),
    _Kind.ARGUMENT: ("([", "])"),
    _Kind.CONTEXT: ("([", "])"),
}


def _mermaid(graphs: list[_Graph]) -> str:
    drawing = ["flowchart LR"]
    framed = len(graphs) > 1
    for graph in graphs:
        body = [*map(_mermaid_box, graph.boxes), *map(_mermaid_line, graph.lines)]
        if framed:
            frame = f'subgraph {graph.boxes[0].id}_frame["{_mermaid_quote(graph.tool)}"]'
            body = [frame, *(f"    {line}" for line in body), "end"]
        drawing += [f"    {line}" for line in body]
    return "\n".join(drawing)


def _mermaid_box(box: _Box) -> str:
    before, after = _MERMAID_SHAPES[box.kind]
    remark = f"<br/>{_mermaid_quote(box.remark)}" if box.remark else ""
    return f'{box.id}{before}"{_mermaid_quote(box.name)}{remark}"{after}'


def _mermaid_line(line: _Line) -> str:
    arrow, remark = ("-.->", " (outcome)") if line.outcome else ("-->", "")
    return f'{line.source} {arrow}|"{line.parameter}{remark}"| {line.target}'


def _mermaid_quote(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


# DOT.

_DOT_SHAPES = {
    _Kind.TOOL: "box3d",
    _Kind.VALUE: "box",
    _Kind.QUESTION: "hexagon",
    _Kind.ARGUMENT: "ellipse",
    _Kind.CONTEXT: "ellipse",
}


def _dot(graphs: list[_Graph]) -> str:
    drawing = ["digraph tools {", "    rankdir=LR;"]
    framed = len(graphs) > 1
    for graph in graphs:
        body = [*map(_dot_box, graph.boxes), *map(_dot_line, graph.lines)]
        if framed:
            frame = [f"subgraph cluster_{graph.boxes[0].id} {{", f"    label={_dot_quote(graph.tool)};"]
            body = [*frame, *(f"    {line}" for line in body), "}"]
        drawing += [f"    {line}" for line in body]
    return "\n".join([*drawing, "}"])


def _dot_box(box: _Box) -> str:
    label = f"{box.name}\n{box.remark}" if box.remark else box.name
    return f"{box.id} [label={_dot_quote(label)}, shape={_DOT_SHAPES[box.kind]}];"


def _dot_line(line: _Line) -> str:
    remark, style = (" (outcome)", ", style=dashed") if line.outcome else ("", "")
    return f"{line.source} -> {line.target} [label={_dot_quote(line.parameter + remark)}{style}];"


def _dot_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# Text.


def _text(graphs: list[_Graph]) -> str:
    return "\n\n".join(_text_of(graph) for graph in graphs)


def _text_of(graph: _Graph) -> str:
    """The tool first, then what it stands on: each with its parameters and what fills them."""
    boxes = {box.id: box for box in graph.boxes}
    width = max((len(line.parameter) for line in graph.lines), default=0)
    lines: list[str] = []
    for box in graph.boxes:
        if box.kind in (_Kind.ARGUMENT, _Kind.CONTEXT):
            continue
        lines.append(f"{box.name}: {box.remark}" if box.remark else box.name)
        filled = [line for line in graph.lines if line.target == box.id]
        lines += [f"    {line.parameter:<{width}} <- {_text_source(boxes[line.source], line)}" for line in filled]
        if box.kind is _Kind.TOOL and not filled:
            lines.append("    (no parameter is filled by a resolver)")
    return "\n".join(lines)


def _text_source(box: _Box, line: _Line) -> str:
    remark = " (argument)" if box.kind is _Kind.ARGUMENT else " (outcome)" if line.outcome else ""
    return f"{box.name}{remark}"
