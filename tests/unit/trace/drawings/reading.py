"""Read drawings in SVG, for their tests."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from xml.etree.ElementTree import Element, fromstring

__all__ = ["Area", "areas", "elements", "overlapping", "parse", "title_of"]

_NAMESPACE = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Area:
    """A rectangle of the drawing, and the text on it."""

    name: str
    left: float
    top: float
    right: float
    bottom: float


def parse(svg: str) -> Element:
    """Parse a drawing, which must be well-formed."""
    return fromstring(svg)


def elements(tree: Element, tag: str, class_name: str = "") -> Iterator[Element]:
    """Return all elements of a kind that have a class."""
    for element in tree.iter(_NAMESPACE + tag):
        if not class_name or class_name in element.get("class", "").split():
            yield element


def title_of(element: Element) -> str:
    """Return the text of an element for screen readers."""
    return element.findtext(_NAMESPACE + "title") or ""


def areas(tree: Element, group_class: str, rectangle_class: str) -> list[Area]:
    """Return the rectangles of some groups, each with its text."""
    found: list[Area] = []
    for group in elements(tree, "g", group_class):
        (box,) = [each for each in group if each.get("class") == rectangle_class]
        left, top = float(box.get("x", "")), float(box.get("y", ""))
        texts = " ".join(each.text or "" for each in elements(group, "text"))
        found.append(Area(texts, left, top, left + float(box.get("width", "")), top + float(box.get("height", ""))))
    return found


def overlapping(among: list[Area]) -> list[tuple[str, str]]:
    """Return the pairs of rectangles that overlap."""
    return [
        (one.name, other.name)
        for one, other in combinations(among, 2)
        if one.left < other.right and other.left < one.right and one.top < other.bottom and other.top < one.bottom
    ]
