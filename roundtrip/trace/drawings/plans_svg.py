"""Draw the dependency graphs of tools in SVG: each box right of its inputs, its parameters listed inside.

A line that passes a column of boxes has a gap of its own there, so it never runs behind a box. The text of a line is at
its end within the box, so texts cannot overlap.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from roundtrip.trace.drawings.graphs import Box, BoxKind, Graph, Line
from roundtrip.trace.drawings.svg import Point, arrow_head, document, group, rectangle, shortened, text, width

__all__ = ["plans_svg"]

_MARGIN: Final = 20.0
_ROW: Final = 20.0
_PADDING: Final = 10.0
_BETWEEN: Final = 24.0
_CHANNEL: Final = 72.0
_PASSAGE: Final = 10.0
_HEAD: Final = 8.0
_SWEEPS: Final = 6
_ORIGIN: Final = Point(0, 0)


def plans_svg(graphs: Sequence[Graph], *, standalone: bool = False) -> str:
    """Draw graphs, one under the other, with a frame around each if there are several.

    Without `standalone`, the page around the drawing must include `svg.STYLE`.
    """
    framed = len(graphs) > 1
    content: list[str] = []
    y, right = _MARGIN, 0.0
    for graph in graphs:
        drawing = _Layout(graph)
        corner = Point(_MARGIN + (_PADDING if framed else 0), y + (_ROW + 2 * _PADDING if framed else 0))
        drawn = drawing.draw(corner)
        size = drawing.size
        if framed:
            name = shortened(graph.tool)
            frame = Point(max(size.x, width(name)) + 2 * _PADDING, size.y + _ROW + 3 * _PADDING)
            heading = text(name, Point(_MARGIN + _PADDING, y + _PADDING + _ROW / 2), "rt-title")
            drawn = [rectangle("rt-frame", Point(_MARGIN, y), frame, radius=8), heading, *drawn]
            size = frame
        content.append(group("rt-plan", drawn, tool=graph.tool))
        y += size.y + _BETWEEN
        right = max(right, size.x)
    tools = ", ".join(graph.tool for graph in graphs)
    return document(
        content,
        Point(right + 2 * _MARGIN, y - _BETWEEN + _MARGIN),
        title="Dependencies of tools",
        description=f"The functions and arguments that fill the parameters of: {tools}.",
        standalone=standalone,
    )


@dataclass(slots=True, eq=False)
class _Cell:
    """Box in its column, or the gap that a line from a box passes through."""

    box: Box | None
    column: int
    size: Point
    rows: list[Line] = field(default_factory=list["Line"])
    before: list["_Cell"] = field(default_factory=list["_Cell"])
    after: list["_Cell"] = field(default_factory=list["_Cell"])
    corner: Point = _ORIGIN

    @property
    def middle(self) -> float:
        return self.corner.y + self.size.y / 2


class _Layout:
    """Layout of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._columns_of = _columns(graph)
        self._cells = {box.id: self._cell(box) for box in graph.boxes}
        self._columns: list[list[_Cell]] = [[] for _ in range(max(self._columns_of.values()) + 1)]
        for cell in self._cells.values():
            self._columns[cell.column].append(cell)
        self._passages: dict[tuple[str, int], _Cell] = {}
        for line in graph.lines:
            self._thread(line)
        self._order()
        self.size = self._place()

    def _cell(self, box: Box) -> _Cell:
        rows = [line for line in self._graph.lines if line.target == box.id]
        texts = [width(shown) for shown in (shortened(box.name), _remark(box), *map(_parameter, rows))]
        height = _ROW * (1 + bool(_remark(box)) + len(rows)) + _PADDING
        return _Cell(box, self._columns_of[box.id], Point(max(texts) + 3 * _PADDING, height), rows)

    def _thread(self, line: Line) -> None:
        """Join the two ends of a line through a gap in each column between them."""
        start, end = self._cells[line.source], self._cells[line.target]
        last = start
        for column in range(start.column + 1, end.column):
            passage = self._passages.get((line.source, column))
            if passage is None:
                passage = self._passages[line.source, column] = _Cell(None, column, Point(0, _PASSAGE))
                self._columns[column].append(passage)
                _join(last, passage)
            last = passage
        _join(last, end)

    def _order(self) -> None:
        """Move each cell of a column to about where its neighbors are, back and forth."""
        for sweep in range(_SWEEPS):
            forwards = sweep % 2 == 0
            places = {cell: place for cells in self._columns for place, cell in enumerate(cells)}
            for cells in self._columns if forwards else reversed(self._columns):
                wanted = {
                    cell: _mean([places[near] for near in (cell.before if forwards else cell.after)], places[cell])
                    for cell in cells
                }
                cells.sort(key=lambda cell: wanted[cell])
                places.update({cell: place for place, cell in enumerate(cells)})

    def _place(self) -> Point:
        heights = [sum(cell.size.y for cell in cells) + _BETWEEN * (len(cells) - 1) for cells in self._columns]
        tallest, x = max(heights), 0.0
        for cells, height in zip(self._columns, heights, strict=True):
            widest = max(cell.size.x for cell in cells)
            y = (tallest - height) / 2
            for cell in cells:
                cell.corner, cell.size = Point(x, y), Point(widest, cell.size.y)
                y += cell.size.y + _BETWEEN
            x += widest + _CHANNEL
        return Point(x - _CHANNEL, tallest)

    def draw(self, corner: Point) -> list[str]:
        """Draw the graph with its left upper corner at a place."""
        for cells in self._columns:
            for cell in cells:
                cell.corner = Point(cell.corner.x + corner.x, cell.corner.y + corner.y)
        boxes = [self._box(cell, cell.box) for cell in self._cells.values() if cell.box is not None]
        return [*map(self._line, self._graph.lines), *boxes]

    def _line(self, line: Line) -> str:
        start, end = self._cells[line.source], self._cells[line.target]
        passages = [self._passages[line.source, column] for column in range(start.column + 1, end.column)]
        at = Point(start.corner.x + start.size.x, start.middle)
        steps = [f"M{at.x:g} {at.y:g}"]
        for passage in passages:
            entry = Point(passage.corner.x, passage.middle)
            steps.append(_curve(at, entry) + f"H{entry.x + passage.size.x:g}")
            at = Point(entry.x + passage.size.x, entry.y)
        tip = Point(end.corner.x, _row(end, end.rows.index(line)))
        before = Point(tip.x - _HEAD, tip.y)
        steps.append(_curve(at, before))
        filler = start.box.name if start.box is not None else ""
        return group(
            "rt-arrow rt-outcome" if line.outcome else "rt-arrow",
            [f'<path class="rt-line" d="{"".join(steps)}"/>', arrow_head(tip, before)],
            title=f"{filler} fills {_parameter(line)}",
            source=line.source,
            target=line.target,
        )

    def _box(self, cell: _Cell, box: Box) -> str:
        radius = 18 if box.kind in (BoxKind.ARGUMENT, BoxKind.CONTEXT) else 4
        parts = [rectangle("rt-box", cell.corner, cell.size, radius=radius)]
        if box.kind is BoxKind.TOOL:
            parts.append(rectangle("rt-inner", cell.corner, cell.size, radius=2, inset=3))
        lines = [(shortened(box.name), "rt-title"), (_remark(box), "rt-small")]
        lines += [(_parameter(row), "") for row in cell.rows]
        shown = [each for each in lines if each[0]]
        left = cell.corner.x + 1.5 * _PADDING
        for number, (content, name) in enumerate(shown):
            parts.append(text(content, Point(left, cell.corner.y + _PADDING / 2 + _ROW * (number + 0.5)), name))
        title = f"{box.kind.value} {box.name}" + (f": {box.remark}" if box.remark else "")
        return group(f"rt-node rt-{box.kind.value}", parts, title=title, box=box.id)


def _columns(graph: Graph) -> dict[str, int]:
    """Return the column of each box: right of all its sources. A box without sources is just left of its first user."""
    columns = {box.id: 0 for box in graph.boxes}
    changed = True
    while changed:
        changed = False
        for line in graph.lines:
            if columns[line.target] <= columns[line.source]:
                columns[line.target] = columns[line.source] + 1
                changed = True
    filled = {line.target for line in graph.lines}
    for box in graph.boxes:
        targets = [columns[line.target] for line in graph.lines if line.source == box.id]
        if box.id not in filled and targets:
            columns[box.id] = min(targets) - 1
    return columns


def _join(source: _Cell, target: _Cell) -> None:
    source.after.append(target)
    target.before.append(source)


def _mean(places: Iterable[int], otherwise: int) -> float:
    found = list(places)
    return sum(found) / len(found) if found else otherwise


def _row(cell: _Cell, number: int) -> float:
    """Return the height of one parameter of a box."""
    return cell.corner.y + cell.size.y - _PADDING / 2 - _ROW * (len(cell.rows) - number - 0.5)


def _curve(start: Point, end: Point) -> str:
    middle = (start.x + end.x) / 2
    return f"C{middle:g} {start.y:g} {middle:g} {end.y:g} {end.x:g} {end.y:g}"


def _remark(box: Box) -> str:
    return shortened(box.remark)


def _parameter(line: Line) -> str:
    return shortened(line.parameter) + (" (outcome)" if line.outcome else "")
