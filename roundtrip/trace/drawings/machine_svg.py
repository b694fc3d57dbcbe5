"""The machine of every call in SVG, laid out from its table.

Living states stand in a row. An event that leads to the next of them is a straight arrow, any other one takes a track
of its own above the row. Final states stand below; what leads to one by the same event shares a track between the rows.
So no two labels can meet, whatever the table says.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from roundtrip.machine.table import CALL_MACHINE, CallArrow, Event, State
from roundtrip.trace.drawings.svg import Point, arrow_head, document, group, line, rectangle, text, width

__all__ = ["machine_svg", "table_svg"]

_MARGIN: Final = 24.0
_NARROWEST: Final = 144.0
_HEIGHT: Final = 44.0
_TRACK: Final = 28.0
_LABEL_HEIGHT: Final = 18.0
_PADDING: Final = 8.0
_CLOSEST: Final = 9.0
_START: Final = 28.0


def machine_svg(
    *, visited: Collection[tuple[State, Event]] = (), current: State | None = None, standalone: bool = False
) -> str:
    """The machine, with where a call went and where it stands.

    Args:
        visited: The arrows that a call has followed, each by its source and its event.
        current: The state that the call is in.
        standalone: Bring the styles along; without them the page around the drawing has to hold `svg.STYLE`.
    """
    return table_svg(CALL_MACHINE.arrows, list(State), visited=visited, current=current, standalone=standalone)


def table_svg(
    arrows: Sequence[CallArrow],
    states: Sequence[State],
    *,
    visited: Collection[tuple[State, Event]] = (),
    current: State | None = None,
    standalone: bool = False,
) -> str:
    """Any such table, drawn in the same way."""
    return _Drawing(arrows, states, set(visited), current).draw(standalone=standalone)


@dataclass(slots=True)
class _Track:
    """All arrows that lead by one event to one state, apart from straight ones, and the height they run at."""

    arrows: list[CallArrow]
    up: bool
    y: float = 0.0
    exits: list[float] = field(default_factory=list[float])
    entry: float = 0.0

    @property
    def event(self) -> Event:
        return self.arrows[0].event

    @property
    def target(self) -> State:
        return self.arrows[0].target

    @property
    def ends(self) -> tuple[float, float]:
        return min([*self.exits, self.entry]), max([*self.exits, self.entry])


class _Drawing:
    """One table on its way to a drawing: sorted, then placed, then written."""

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
        self.final = {state for state in states if state not in sources}
        self.living = [state for state in states if state not in self.final]
        self.places = {state: place for place, state in enumerate(self.living)}
        self.straight, bent = self._sort()
        self.above = _tracks([arrow for arrow in bent if arrow.target not in self.final], up=True)
        self.below = _tracks([arrow for arrow in bent if arrow.target in self.final], up=False)
        self.above.sort(key=self._span, reverse=True)
        self.below.sort(key=self._span)
        self._place()

    def _sort(self) -> tuple[list[CallArrow], list[CallArrow]]:
        straight: dict[State, CallArrow] = {}
        bent: list[CallArrow] = []
        for arrow in self.arrows:
            follows = arrow.target in self.places and self.places[arrow.target] == self.places[arrow.source] + 1
            if not follows or straight.setdefault(arrow.source, arrow) is not arrow:
                bent.append(arrow)
        return list(straight.values()), bent

    def _span(self, track: _Track) -> float:
        places = [
            self.places[state]
            for arrow in track.arrows
            for state in (arrow.source, arrow.target)
            if state in self.places
        ]
        return max(places) - min(places)

    def _place(self) -> None:
        gap = max([64.0, *(width(arrow.event) + 2 * _PADDING + 24 for arrow in self.straight)])
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
        """Each as near as may be below what leads to it."""

        def middle(state: State) -> float:
            sources = [self.x[arrow.source] for arrow in self.arrows if arrow.target == state]
            return sum(sources) / len(sources) if sources else right

        wanted = sorted(self.final, key=lambda state: (middle(state), state))
        step = max(self.box.x + gap / 2, (right - _MARGIN - _START) / max(len(wanted), 1))
        for place, state in enumerate(wanted):
            self.x[state] = _MARGIN + _START + step * (place + 0.5)

    def _place_ports(self) -> None:
        """Place the ends of each arrow on its boxes, so that nested tracks do not cross."""
        tops: dict[State, list[tuple[float, float, _Track, bool]]] = {}
        bottoms: dict[State, list[tuple[float, float, _Track, bool]]] = {}
        for ports, tracks in ((tops, self.above), (bottoms, self.below)):
            for number, track in enumerate(tracks):
                depth = len(tracks) - number if track.up else number + 1
                for arrow in track.arrows:
                    side = -1 if self.x[track.target] < self.x[arrow.source] else 1
                    ports.setdefault(arrow.source, []).append((side, -side * depth, track, False))
                if track.up:
                    middle = sum(self.x[arrow.source] for arrow in track.arrows) / len(track.arrows)
                    side = -1 if middle < self.x[track.target] else 1
                    ports.setdefault(track.target, []).append((side, -side * depth, track, True))
        for ports in (tops, bottoms):
            for state, found in ports.items():
                found.sort(key=lambda port: port[:2])
                for number, (_, _, track, enters) in enumerate(found):
                    x = self.x[state] + self.box.x * ((number + 1) / (len(found) + 1) - 0.5)
                    self._connect(track, x, enters=enters)
        entries: dict[State, list[_Track]] = {}
        for track in self.below:
            entries.setdefault(track.target, []).append(track)
        for state, tracks in entries.items():
            for number, track in enumerate(tracks):
                x = self.x[state] + self.box.x * ((number + 1) / (len(tracks) + 1) - 0.5)
                while any(abs(x - taken) < _CLOSEST for taken, _, _ in self.verticals):
                    x += _CLOSEST / 2
                self._connect(track, x, enters=True)

    def _connect(self, track: _Track, x: float, *, enters: bool) -> None:
        if enters:
            track.entry = x
        else:
            track.exits.append(x)
        edge = self._edge(track, enters=enters)
        self.verticals.append((x, min(edge, track.y), max(edge, track.y)))

    def _edge(self, track: _Track, *, enters: bool) -> float:
        if track.up:
            return self.row - self.box.y / 2
        return self.last_row - self.box.y / 2 if enters else self.row + self.box.y / 2

    def draw(self, *, standalone: bool) -> str:
        """The drawing, with visited arrows over the others and labels over all lines."""
        lines: list[tuple[bool, str]] = []
        labels: list[str] = []
        for arrow in self.straight:
            start = Point(self.x[arrow.source] + self.box.x / 2, self.row)
            end = Point(self.x[arrow.target] - self.box.x / 2, self.row)
            lines.append(self._arrow(arrow, [start, end]))
            labels.append(self._label([arrow], Point((start.x + end.x - 8) / 2, self.row - _LABEL_HEIGHT / 2 - 3)))
        for track in [*self.above, *self.below]:
            out, into = self._edge(track, enters=False), self._edge(track, enters=True)
            for arrow, x in zip(self._in_port_order(track), track.exits, strict=True):
                points = [Point(x, out), Point(x, track.y), Point(track.entry, track.y), Point(track.entry, into)]
                lines.append(self._arrow(arrow, points))
            labels.append(self._label(track.arrows, Point(self._label_place(track), track.y)))
        content = [
            *self._starts(),
            *(drawn for _, drawn in sorted(lines, key=lambda each: each[0])),
            *labels,
            *(self._state(state) for state in [*self.living, *sorted(self.final, key=lambda state: self.x[state])]),
        ]
        return document(
            content, self.size, title="The machine of a call", description=self._description(), standalone=standalone
        )

    def _in_port_order(self, track: _Track) -> list[CallArrow]:
        """Exits were noted state by state; each arrow has the one within its source's box."""
        return [
            next(arrow for arrow in track.arrows if abs(self.x[arrow.source] - x) < self.box.x / 2) for x in track.exits
        ]

    def _starts(self) -> list[str]:
        """A dot and an arrow to where nothing else leads."""
        reached = {arrow.target for arrow in self.arrows}
        starts: list[str] = []
        for state in self.living:
            if state not in reached:
                end = Point(self.x[state] - self.box.x / 2, self.row)
                start = Point(end.x - _START, end.y)
                dot = f'<circle class="rt-head" cx="{start.x:g}" cy="{start.y:g}" r="5"/>'
                starts.append(group("rt-begin", [dot, line([start, end]), arrow_head(end, start)]))
        return starts

    def _arrow(self, arrow: CallArrow, points: list[Point]) -> tuple[bool, str]:
        visited = (arrow.source, arrow.event) in self.visited
        title = f"{arrow.source}: {arrow.event} leads to {arrow.target}" + (" (visited)" if visited else "")
        dot = f'<circle class="rt-dot" cx="{points[0].x:g}" cy="{points[0].y:g}" r="5"/>'
        drawn = group(
            "rt-arrow rt-visited" if visited else "rt-arrow",
            [line(points), arrow_head(points[-1], points[-2]), dot],
            title=title,
            source=arrow.source,
            event=arrow.event,
            target=arrow.target,
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
        left, right = track.ends
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
            parts.append(
                rectangle(
                    "rt-inner", Point(corner.x + 4, corner.y + 4), Point(self.box.x - 8, self.box.y - 8), radius=7
                )
            )
        parts.append(f'<circle class="rt-dot" cx="{corner.x + 9:g}" cy="{middle.y:g}" r="4"/>')
        parts.append(text(state, middle, "rt-middle"))
        names = ["rt-state", *(["rt-final"] if final else []), *(["rt-current"] if current else [])]
        title = state + (" (final)" if final else "") + (": the call is here" if current else "")
        return group(" ".join(names), parts, title=title, state=state)

    def _description(self) -> str:
        told = f"{len(self.x)} states and {len(self.arrows)} arrows between them."
        followed = [arrow for arrow in self.arrows if (arrow.source, arrow.event) in self.visited]
        if followed:
            told += " Visited: " + ", ".join(f"{arrow.source} {arrow.event} {arrow.target}" for arrow in followed) + "."
        if self.current is not None:
            told += f" The call is {self.current}."
        return told


def _tracks(arrows: Sequence[CallArrow], *, up: bool) -> list[_Track]:
    tracks: dict[tuple[Event, State], _Track] = {}
    for arrow in arrows:
        key = (arrow.event, arrow.target)
        if key in tracks:
            tracks[key].arrows.append(arrow)
        else:
            tracks[key] = _Track([arrow], up)
    return list(tracks.values())
