"""Graph of a tool: the sources of its parameters and the lines between them, for every drawing format."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from roundtrip.questions.approvals import Approve
from roundtrip.questions.markers import SdkElicit, SdkListRoots, SdkSample
from roundtrip.resolvers.plan import Input, Node, Plan, Source

__all__ = ["Box", "BoxKind", "Graph", "Line", "graphs_of"]


class BoxKind(Enum):
    """Kinds of boxes; each has its own shape."""

    TOOL = "tool"
    VALUE = "value"
    QUESTION = "question"
    ARGUMENT = "argument"
    CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class Box:
    """Source of parameters, or the tool whose parameters are filled."""

    id: str
    kind: BoxKind
    name: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Parameter of `target` that `source` fills."""

    source: str
    target: str
    parameter: str
    outcome: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """Graph of one tool, for every drawing format."""

    tool: str
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def graphs_of(plans: Mapping[str, Plan]) -> list[Graph]:
    """Return the graphs of tools, given their plans by name."""
    return [_graph(tool, plan, f"t{place}") for place, (tool, plan) in enumerate(plans.items())]


def _graph(tool: str, plan: Plan, prefix: str) -> Graph:
    boxes = {prefix: Box(prefix, BoxKind.TOOL, tool)}
    lines: list[Line] = []
    arguments: dict[str, Box] = {}

    def source_of(entry: Input) -> str:
        if entry.source is Source.NODE:
            return f"{prefix}_n{entry.node}"
        if entry.source is Source.CONTEXT:
            box = Box(f"{prefix}_context", BoxKind.CONTEXT, "Context")
        else:
            # An alias may hold any character, so its number is the id.
            box = Box(f"{prefix}_a{len(arguments)}", BoxKind.ARGUMENT, entry.name, "argument")
            box = arguments.setdefault(entry.name, box)
        boxes.setdefault(box.id, box)
        return box.id

    def connect(target: str, entry: Input) -> None:
        lines.append(Line(source_of(entry), target, entry.parameter, entry.outcome))

    for node in plan.nodes:
        box = _node(node, prefix)
        boxes[box.id] = box
        for entry in node.inputs:
            connect(box.id, entry)
    for entry in plan.roots:
        connect(prefix, entry)
    return Graph(tool, tuple(boxes.values()), tuple(lines))


def _node(node: Node, prefix: str) -> Box:
    remarks = [] if node.key == node.label else [node.label]
    asking = _asking(node)
    if asking is not None:
        remarks.append(asking)
    if node.once:
        remarks.append("once per call")
    kind = BoxKind.VALUE if asking is None else BoxKind.QUESTION
    return Box(f"{prefix}_n{node.index}", kind, node.key, ", ".join(remarks))


def _asking(node: Node) -> str | None:
    asked = node.asked
    if node.asks_page:
        return "sends the user to a page"
    if asked is None:
        return None
    if not isinstance(asked, type):
        # A choice, or a list of choices: too long to be written out.
        return "asks the user"
    if issubclass(asked, SdkSample):
        return "asks the client's model"
    if issubclass(asked, SdkListRoots):
        return "asks for the client's roots"
    if issubclass(asked, Approve):
        return "asks a group to approve"
    return "asks the user" if issubclass(asked, SdkElicit) else f"asks the user for {asked.__name__}"
