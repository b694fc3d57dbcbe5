"""The machine in SVG: complete, legible, marked by more than color, and fit for a page with a strict policy."""

import re
from enum import StrEnum
from itertools import pairwise
from typing import cast
from xml.etree.ElementTree import Element

from roundtrip.machine.table import CALL_MACHINE, CallArrow, Event, State
from roundtrip.trace.drawings.machine_svg import machine_svg
from roundtrip.trace.drawings.svg import STYLE
from roundtrip.trace.drawings.svg import width as text_width
from tests.kit.tables import check_each
from tests.unit.trace.drawings.reading import areas, elements, overlapping, parse, title_of


class Wider(StrEnum):
    """States of a table that does not exist yet."""

    PAUSED = "paused"
    EXPIRED = "expired_while_it_was_paused"


PAUSED, EXPIRED = (cast("State", state) for state in Wider)
WIDER_STATES = [*State, PAUSED, EXPIRED]
WIDER_ARROWS = [
    *CALL_MACHINE.arrows,
    CallArrow(State.RECEIVED, Event.RESOLVE, PAUSED),
    CallArrow(State.RECEIVED, Event.EXECUTE, State.RESOLVING),
    CallArrow(PAUSED, Event.RESUME, State.RESOLVING),
    CallArrow(PAUSED, Event.ASK, PAUSED),
    CallArrow(PAUSED, Event.FAIL, State.FAILED),
    CallArrow(PAUSED, Event.REJECT, EXPIRED),
]
TABLES: dict[str, tuple[list[CallArrow], list[State]]] = {
    "the table": (list(CALL_MACHINE.arrows), list(State)),
    "a wider table": (WIDER_ARROWS, WIDER_STATES),
    "half a table": (list(CALL_MACHINE.arrows[:8]), list(State)),
}


def drawn(name: str) -> Element:
    return parse(machine_svg(*TABLES[name]))


def test_every_state_and_arrow_is_drawn_once_in_its_place() -> None:
    def check(name: str) -> None:
        arrows, states = TABLES[name]
        tree = drawn(name)
        found = [tuple(each.get(f"data-{part}") for part in ("source", "event", "target")) for each in arrows_of(tree)]
        assert len(found) == len(arrows)
        assert set(found) == {(arrow.source, arrow.event, arrow.target) for arrow in arrows}
        boxes = {area.name: area for area in areas(tree, "rt-state", "rt-box")}
        assert sorted(boxes) == sorted(states)
        labels = {(each.get("data-event"), each.get("data-target")) for each in elements(tree, "g", "rt-label")}
        assert labels == {(arrow.event, arrow.target) for arrow in arrows}
        placed = [*areas(tree, "rt-label", "rt-back"), *boxes.values()]
        assert overlapping(placed) == []
        width, height = float(tree.get("width", "")), float(tree.get("height", ""))
        assert all(0 <= area.left < area.right <= width and 0 <= area.top < area.bottom <= height for area in placed)
        assert all(area.right - area.left > text_width(area.name) for area in placed)
        for arrow in arrows_of(tree):
            (path,) = elements(arrow, "path", "rt-line")
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d", ""))]
            for part, (x, y) in (("source", numbers[:2]), ("target", numbers[-2:])):
                box = boxes[arrow.get(f"data-{part}", "")]
                assert box.left <= x <= box.right
                assert box.top <= y <= box.bottom

    check_each(TABLES, check)


def test_vertical_lines_of_one_event_do_not_overlap() -> None:
    def check(name: str) -> None:
        upright: list[tuple[tuple[str | None, str | None], float, float, float]] = []
        for arrow in arrows_of(drawn(name)):
            (path,) = elements(arrow, "path", "rt-line")
            points = [
                (float(x), float(y))
                for x, y in re.findall(r"(?:[ML]|Q[-\d.]+ [-\d.]+ )([-\d.]+) ([-\d.]+)", path.get("d", ""))
            ]
            event = (arrow.get("data-event"), arrow.get("data-target"))
            for (x, y), (other_x, other_y) in pairwise(points):
                if x == other_x:
                    upright.append((event, x, min(y, other_y), max(y, other_y)))
        assert upright
        for event, x, top, bottom in upright:
            for other, other_x, other_top, other_bottom in upright:
                if event != other and top < other_bottom and other_top < bottom:
                    assert abs(x - other_x) > 4, (event, other)

    check_each(TABLES, check)


def arrows_of(tree: Element) -> list[Element]:
    return list(elements(tree, "g", "rt-arrow"))


VISITED = [(State.RECEIVED, Event.BEGIN), (State.RESOLVING, Event.ASK)]


def test_path_is_marked_by_class_dot_and_words() -> None:
    tree = parse(machine_svg(visited=VISITED, current=State.AWAITING_INPUT))
    visited = list(elements(tree, "g", "rt-visited"))
    arrows = [each for each in visited if "rt-arrow" in each.get("class", "")]
    assert {(each.get("data-source"), each.get("data-event")) for each in arrows} == set(VISITED)
    assert all(title_of(each).endswith("(visited)") for each in arrows)
    assert all(list(elements(each, "circle", "rt-dot")) for each in arrows)
    assert {each.get("data-event") for each in visited} == {"begin", "ask"}
    (current,) = elements(tree, "g", "rt-current")
    assert current.get("data-state") == "awaiting_input"
    assert title_of(current) == "awaiting_input: the call is here"
    description = tree.findtext("{http://www.w3.org/2000/svg}desc") or ""
    assert "Visited: received begin resolving, resolving ask awaiting_input." in description
    assert "The call is awaiting_input." in description


def test_drawing_is_one_named_image_for_a_strict_policy() -> None:
    drawing = machine_svg(visited=VISITED, current=State.RESOLVING)
    assert "style" not in drawing
    assert "script" not in drawing
    assert not re.search(r"\son\w+=|href|url\(|\sid=", drawing)
    tree = parse(drawing)
    assert tree.get("role") == "img"
    assert [child.tag.rpartition("}")[2] for child in tree][:2] == ["title", "desc"]
    assert title_of(tree) == "The machine of a call"


def test_style_of_a_standalone_drawing_marks_by_more_than_color() -> None:
    (style,) = elements(parse(machine_svg(standalone=True)), "style")
    assert (style.text or "").strip() == STYLE.strip()
    assert "prefers-color-scheme: dark" in STYLE
    assert not re.search("http|@import", STYLE)
    for name in (".rt-visited .rt-line", ".rt-current .rt-box"):
        (rule,) = re.findall(rf"{re.escape(name)} \{{(.*?)\}}", STYLE)
        assert "stroke-width: 3.4" in rule


def test_final_states_and_visited_arrows_stand_out() -> None:
    final = list(elements(parse(machine_svg()), "g", "rt-final"))
    assert {each.get("data-state") for each in final} == set(CALL_MACHINE.final)
    assert all(title_of(each).endswith("(final)") for each in final)
    assert all(list(elements(each, "rect", "rt-inner")) for each in final)
    # Visited arrows lie over those that they share a track with.
    names = [each.get("class") for each in arrows_of(parse(machine_svg(visited=[(State.RECEIVED, Event.FAIL)])))]
    assert names.index("rt-arrow rt-visited") == len(names) - 1
