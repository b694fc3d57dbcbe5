"""Draw the machine of every call in SVG, laid out from its table.

Living states are in a row. An event that leads to the next of them is a straight arrow. Any other has a track of its
own above the row. Final states are below, and arrows to one by the same event share a track between the rows. So labels
cannot overlap, whatever the table is.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from roundtrip.machine.table import CALL_MACHINE, CallArrow, Event, State
from roundtrip.trace.drawings.svg import Point, arrow_head, document, dot, group, line, rectangle, text, width

__all__ = ["machine_svg"]

_MARGIN: Final = 24.0
_NARROWEST: Final = 144.0
_HEIGHT: Final = 44.0
_TRACK: Final = 28.0
_LABEL_HEIGHT: Final = 18.0
_PADDING: Final = 8.0
_CLOSEST: Final = 9.0
_START: Final = 28.0


def machine_svg(
    arrows: Sequence[CallArrow] = CALL_MACHINE.arrows,
    states: Sequence[State] = tuple(State),
    *,
    visited: Collection[tuple[State, Event]] = (),
    current: State | None = None,
    standalone: bool = False,
) -> str:
    """Draw a machine, with the arrows that a call took, and its state.

    Without `standalone`, the page around the drawing must include `svg.STYLE`.
    """
    return _Drawing(arrows, states, set(visited), current).draw(standalone=standalone)


@dataclass(slots=True)
class _Track:
    """Arrows of one event to one state, without the straight ones, and their height."""

    event: Event
    target: State
    up: bool
    arrows: list[CallArrow] = field(default_factory=list[CallArrow])
    y: float = 0.0
    exits: dict[State, float] = field(default_factory=dict[State, float])
    entry: float = 0.0


class _Drawing:
    """Layout of one table: it is sorted, then placed, then written."""

    def __init__(
        self,
        arrows: Sequence[CallArrow],
        states: Sequence[State],
        visited: set[tuple[State, Event]],
        current: State | None,
    ) -> None:
        self.arrows = arrows
        self.visited = visited
        self.current = current
        self.box = Point(max([_NARROWEST, *(width(state) + 2 * _MARGIN for state in states)]), _HEIGHT)
        sources = {arrow.source for arrow in arrows}
        self.final = [state for state in states if state not in sources]
        self.living = [state for state in states if state in sources]
        self.straight: dict[State, CallArrow] = {}
        tracks: dict[tuple[Event, State], _Track] = {}
        following = dict(pairwise(self.living))
        for arrow in arrows:
            if following.get(arrow.source) == arrow.target and arrow.source not in self.straight:
                self.straight[arrow.source] = arrow
            else:
                up = arrow.target not in self.final
                track = tracks.setdefault((arrow.event, arrow.target), _Track(arrow.event, arrow.target, up))
                track.arrows.append(arrow)
        self.above = sorted((track for track in tracks.values() if track.up), key=self._span, reverse=True)
        self.below = sorted((track for track in tracks.values() if not track.up), key=self._span)
        self._place()

    def _span(self, track: _Track) -> int:
        ends = {track.target, *(arrow.source for arrow in track.arrows)}
        places = [place for place, state in enumerate(self.living) if state in ends]
        return max(places) - min(places)

    def _place(self) -> None:
        gap = max([64.0, *(width(arrow.event) + 2 * _PADDING + 24 for arrow in self.straight.values())])
        top = _MARGIN + _TRACK * len(self.above) + _PADDING
        self.row = top + self.box.y / 2
        bottom = top + self.box.y
        self.last_row = bottom + _TRACK * (len(self.below) + 1) + self.box.y / 2 + _PADDING
        self.x = {
            state: _MARGIN + _START + self.box.x / 2 + place * (self.box.x + gap)
            for place, state in enumerate(self.living)
        }
        right = max([*self.x.values(), 0]) + self.box.x / 2
        self._place_final(right, gap)
        for number, track in enumerate(self.above):
            track.y = _MARGIN + _TRACK * number + _LABEL_HEIGHT / 2
        for number, track in enumerate(self.below):
            track.y = bottom + _TRACK * (number + 1)
        self.verticals: list[tuple[float, float, float]] = []
        self._place_ports()
        self.size = Point(
            max([right, *(x + self.box.x / 2 for x in self.x.values())]) + _MARGIN,
            self.last_row + self.box.y / 2 + _MARGIN,
        )

    def _place_final(self, right: float, gap: float) -> None:
        """Place each final state as near as possible below the states that lead to it."""

        def middle(state: State) -> float:
            sources = [self.x[arrow.source] for arrow in self.arrows if arrow.target == state]
            return sum(sources) / len(sources) if sources else right

        wanted = sorted(self.final, key=lambda state: (middle(state), state))
        step = max(self.box.x + gap / 2, (right - _MARGIN - _START) / max(len(wanted), 1))
        for place, state in enumerate(wanted):
            self.x[state] = _MARGIN + _START + step * (place + 0.5)

    def _place_ports(self) -> None:
        """Place the ends of each arrow on its boxes, so that nested tracks do not cross."""
        for tracks in (self.above[::-1], self.below):
            # Each port by its side of the box, and by the depth of its track.
            ports: defaultdict[State, list[tuple[int, int, _Track, bool]]] = defaultdict(list)
            for depth, track in enumerate(tracks, start=1):
                for arrow in track.arrows:
                    side = -1 if self.x[track.target] < self.x[arrow.source] else 1
                    ports[arrow.source].append((side, -side * depth, track, False))
                if track.up:
                    middle = sum(self.x[arrow.source] for arrow in track.arrows) / len(track.arrows)
                    side = -1 if middle < self.x[track.target] else 1
                    ports[track.target].append((side, -side * depth, track, True))
            for state, found in ports.items():
                found.sort(key=lambda port: port[:2])
                for number, (_, _, track, enters) in enumerate(found, start=1):
                    self._connect(track, state, self._port(state, number, len(found)), enters=enters)
        for state in self.final:
            entering = [track for track in self.below if track.target == state]
            for number, track in enumerate(entering, start=1):
                x = self._port(state, number, len(entering))
                while any(abs(x - taken) < _CLOSEST for taken, _, _ in self.verticals):
                    x += _CLOSEST / 2
                self._connect(track, state, x, enters=True)

    def _port(self, state: State, number: int, ports: int) -> float:
        """Return the place of one of several ports, which are spread over the width of a box."""
        return self.x[state] + self.box.x * (number / (ports + 1) - 0.5)

    def _connect(self, track: _Track, state: State, x: float, *, enters: bool) -> None:
        if enters:
            track.entry = x
        else:
            track.exits[state] = x
        edge = self._edge(track, enters=enters)
        self.verticals.append((x, min(edge, track.y), max(edge, track.y)))

    def _edge(self, track: _Track, *, enters: bool) -> float:
        if track.up:
            return self.row - self.box.y / 2
        return self.last_row - self.box.y / 2 if enters else self.row + self.box.y / 2

    def draw(self, *, standalone: bool) -> str:
        """Return the drawing, with visited arrows over the others and labels over all lines."""
        lines: list[tuple[bool, str]] = []
        labels: list[str] = []
        for arrow in self.straight.values():
            start = Point(self.x[arrow.source] + self.box.x / 2, self.row)
            end = Point(self.x[arrow.target] - self.box.x / 2, self.row)
            lines.append(self._arrow(arrow, [start, end]))
            labels.append(self._label([arrow], Point((start.x + end.x - 8) / 2, self.row - _LABEL_HEIGHT / 2 - 3)))
        for track in [*self.above, *self.below]:
            out, into = self._edge(track, enters=False), self._edge(track, enters=True)
            for arrow in track.arrows:
                x = track.exits[arrow.source]
                points = [Point(x, out), Point(x, track.y), Point(track.entry, track.y), Point(track.entry, into)]
                lines.append(self._arrow(arrow, points))
            labels.append(self._label(track.arrows, Point(self._label_place(track), track.y)))
        content = [
            *self._starts(),
            *(drawn for _, drawn in sorted(lines, key=lambda each: each[0])),
            *labels,
            *map(self._state, [*self.living, *self.final]),
        ]
        return document(
            content, self.size, title="The machine of a call", description=self._description(), standalone=standalone
        )

    def _starts(self) -> list[str]:
        """Draw a dot and an arrow to each state that nothing else leads to."""
        starts: list[str] = []
        for state in self.living:
            if all(arrow.target != state for arrow in self.arrows):
                end = Point(self.x[state] - self.box.x / 2, self.row)
                start = Point(end.x - _START, end.y)
                drawn = [dot("rt-head", start), line([start, end]), arrow_head(end, start)]
                starts.append(group("rt-begin", drawn))
        return starts

    def _arrow(self, arrow: CallArrow, points: list[Point]) -> tuple[bool, str]:
        """Return True if the call took an arrow, and the arrow's drawing."""
        source, event, target = arrow
        visited = (source, event) in self.visited
        drawn = group(
            "rt-arrow rt-visited" if visited else "rt-arrow",
            [line(points), arrow_head(points[-1], points[-2]), dot("rt-dot", points[0])],
            title=f"{source}: {event} leads to {target}{' (visited)' if visited else ''}",
            source=source,
            event=event,
            target=target,
        )
        return visited, drawn

    def _label(self, arrows: Sequence[CallArrow], middle: Point) -> str:
        event = arrows[0].event
        visited = any((arrow.source, arrow.event) in self.visited for arrow in arrows)
        size = Point(width(event) + _PADDING, _LABEL_HEIGHT)
        back = rectangle("rt-back", Point(middle.x - size.x / 2, middle.y - size.y / 2), size)
        name = "rt-label rt-visited" if visited else "rt-label"
        sources = " ".join(arrow.source for arrow in arrows)
        return group(
            name, [back, text(event, middle, "rt-middle")], event=event, sources=sources, target=arrows[0].target
        )

    def _label_place(self, track: _Track) -> float:
        """Return the place on a track where a label hides the fewest lines, as near to the middle as possible."""
        left, right = min(*track.exits.values(), track.entry), max(*track.exits.values(), track.entry)
        half = (width(track.event) + _PADDING) / 2
        middle = (left + right) / 2
        if right - left < 2 * half:
            return middle

        def cost(x: float) -> tuple[int, float]:
            hidden = sum(
                abs(x - taken) < half + _PADDING and low - _LABEL_HEIGHT / 2 < track.y < high + _LABEL_HEIGHT / 2
                for taken, low, high in self.verticals
            )
            return hidden, abs(x - middle)

        steps = int((right - left - 2 * half) / 4)
        return min((left + half + 4 * step for step in range(steps + 1)), key=cost)

    def _state(self, state: State) -> str:
        final, current = state in self.final, state == self.current
        middle = Point(self.x[state], self.last_row if final else self.row)
        corner = Point(middle.x - self.box.x / 2, middle.y - self.box.y / 2)
        parts = [rectangle("rt-box", corner, self.box, radius=10)]
        if final:
            parts.append(rectangle("rt-inner", corner, self.box, radius=7, inset=4))
        parts += [dot("rt-dot", Point(corner.x + 9, middle.y), 4), text(state, middle, "rt-middle")]
        name = f"rt-state{' rt-final' if final else ''}{' rt-current' if current else ''}"
        title = f"{state}{' (final)' if final else ''}{': the call is here' if current else ''}"
        return group(name, parts, title=title, state=state)

    def _description(self) -> str:
        told = f"{len(self.x)} states and {len(self.arrows)} arrows between them."
        followed = [" ".join(arrow) for arrow in self.arrows if (arrow.source, arrow.event) in self.visited]
        if followed:
            told += f" Visited: {', '.join(followed)}."
        if self.current is not None:
            told += f" The call is {self.current}."
        return told
