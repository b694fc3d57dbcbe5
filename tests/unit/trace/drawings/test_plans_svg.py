"""Tools' dependency graphs in SVG: complete, without overlaps, and safe with any names."""

import re
from itertools import pairwise
from typing import Annotated, Any
from xml.etree.ElementTree import Element

from pydantic import BaseModel

from roundtrip import Context, Elicit, ElicitationResult, Resolve, Server
from roundtrip.trace.drawings.graphs import Box, BoxKind, Graph, Line, graphs_of
from roundtrip.trace.drawings.plans_svg import plans_svg
from roundtrip.trace.drawings.svg import width
from tests.kit.tables import check_each
from tests.unit.trace.drawings.reading import areas, elements, overlapping, parse, title_of


class Consent(BaseModel):
    agreed: bool


def price(title: str, ctx: Context) -> float:
    return len(title) + len(ctx.request_id)


def consent(price: Annotated[float, Resolve(price, once=True)]) -> Elicit[Consent]:
    return Elicit(f"{price}?", Consent)


def stock(title: str) -> int:
    return len(title)


def depot(stock: Annotated[int, Resolve(stock)], price: Annotated[float, Resolve(price, once=True)]) -> str:
    return f"{stock} {price}"


def shop() -> list[Graph]:
    server: Server[Any] = Server("shop")

    @server.tool()
    def order(
        title: str,
        stock: Annotated[int, Resolve(stock)],
        consent: Annotated[ElicitationResult[Consent], Resolve(consent)],
        depot: Annotated[str, Resolve(depot)],
    ) -> str:
        return f"{title} {stock} {consent} {depot}"

    @server.tool()
    def close() -> str:
        return "closed"

    del order, close
    return graphs_of(server.plans)


HOSTILE = [
    '</text><script>alert(1)</script>"',
    "&lt;&amp;'",
    "\x1b[31mred\x00\x07",
    "\u202egnirts",
    "\ud800",
    "a\nb\tc",
    "W" * 500,
    "漢字" * 10,
    "\U0001f600" * 10,
    "",
]


def hostile() -> list[Graph]:
    boxes = [Box(f"n{place}", BoxKind.QUESTION, name, name) for place, name in enumerate(HOSTILE)]
    tool = Box("tool", BoxKind.TOOL, HOSTILE[0])
    lines = [Line(box.id, "tool", box.name, outcome=True) for box in boxes]
    return [Graph(HOSTILE[0], (tool, *boxes), tuple(lines)), Graph("second", (tool,), ())]


def ladder(length: int) -> list[Graph]:
    """Return a plan in which each box needs all before it, which makes the most lines past other boxes."""
    boxes = [Box(f"n{place}", BoxKind.VALUE, f"value_{place}") for place in range(length)]
    lines = [Line(f"n{low}", f"n{high}", f"p{low}") for high in range(length) for low in range(high)]
    return [Graph("ladder", tuple(reversed(boxes)), tuple(lines))]


GRAPHS = {"shop": shop, "hostile": hostile, "ladder": lambda: ladder(7)}


def drawn(name: str) -> Element:
    return parse(plans_svg(GRAPHS[name]()))


def test_every_box_and_line_is_drawn_once_without_overlaps() -> None:
    def check(name: str) -> None:
        graphs = GRAPHS[name]()
        tree = drawn(name)
        assert sorted(each.get("data-box", "") for each in elements(tree, "g", "rt-node")) == sorted(
            box.id for graph in graphs for box in graph.boxes
        )
        found = [(each.get("data-source", ""), each.get("data-target", "")) for each in elements(tree, "g", "rt-arrow")]
        assert sorted(found) == sorted((line.source, line.target) for graph in graphs for line in graph.lines)
        boxes = areas(tree, "rt-node", "rt-box")
        assert overlapping(boxes) == []
        size = float(tree.get("width", "")), float(tree.get("height", ""))
        assert all(0 <= box.left < box.right <= size[0] and 0 <= box.top < box.bottom <= size[1] for box in boxes)
        for node, box in zip(elements(tree, "g", "rt-node"), boxes, strict=True):
            rows = [float(text.get("y", "")) for text in elements(node, "text")]
            assert all(later - earlier >= 18 for earlier, later in pairwise(rows))
            assert all(box.top < row < box.bottom for row in rows)
            for text in elements(node, "text"):
                left = float(text.get("x", ""))
                assert box.left < left < left + width(text.text or "") < box.right
        for path in elements(tree, "path", "rt-line"):
            for start, y, end in level_parts(path.get("d", "")):
                assert not [box for box in boxes if start < box.right and box.left < end and box.top < y < box.bottom]

    check_each(GRAPHS, check)


def level_parts(path: str) -> list[tuple[float, float, float]]:
    """Return the straight pieces of a line that pass a column; curves are in the channels between columns."""
    found = re.findall(r"C[-\d.]+ [-\d.]+ [-\d.]+ [-\d.]+ ([-\d.]+) ([-\d.]+)H([-\d.]+)", path)
    return [(float(start), float(y), float(end)) for start, y, end in found]


def test_boxes_stand_right_of_what_they_need() -> None:
    left = {area.name.split()[0]: area.left for area in areas(parse(plans_svg(shop()[:1])), "rt-node", "rt-box")}
    assert left["title"] < left["price"] < left["consent"] < left["order"]
    assert left["stock"] < left["depot"] < left["order"]


def test_several_tools_are_framed_and_one_is_not() -> None:
    tree = parse(plans_svg(shop()))
    assert len(list(elements(tree, "rect", "rt-frame"))) == 2
    plans = [each.get("data-tool") for each in elements(tree, "g", "rt-plan")]
    assert plans == ["order", "close"]
    frames = areas(tree, "rt-plan", "rt-frame")
    assert overlapping(frames) == []
    assert frames[0].bottom < frames[1].top
    assert not list(elements(parse(plans_svg(shop()[:1])), "rect", "rt-frame"))


def test_kinds_of_boxes_and_lines_are_readable_in_words() -> None:
    tree = parse(plans_svg(shop()[:1]))
    told = {title_of(node): node.get("class", "").split()[1] for node in elements(tree, "g", "rt-node")}
    assert told == {
        "tool order": "rt-tool",
        "argument title: argument": "rt-argument",
        "context Context": "rt-context",
        "value price: once per call": "rt-value",
        "question consent: asks the user for Consent": "rt-question",
        "value stock": "rt-value",
        "value depot": "rt-value",
    }
    (line,) = elements(tree, "g", "rt-outcome")
    assert title_of(line) == "consent fills consent (outcome)"


def test_hostile_names_stay_text_of_characters_that_rearrange_nothing() -> None:
    drawing = plans_svg(hostile())
    assert "<script" not in drawing
    assert all(char.isprintable() or char == "\n" for char in drawing)
    assert drawing.encode("utf-8")
    texts = [text.text or "" for text in elements(parse(drawing), "text")]
    assert '</text><script>alert(1)</script>"' in texts
    assert "�[31mred��" in texts
    assert "�gnirts" in texts
    assert max(map(len, texts)) <= 48 + len(" (outcome)")


def test_a_page_with_a_strict_policy_can_hold_it() -> None:
    drawing = plans_svg(shop())
    assert "style" not in drawing
    assert not re.search(r"\son\w+=|href|url\(|\sid=", drawing)
    assert list(elements(parse(plans_svg(shop(), standalone=True)), "style"))
