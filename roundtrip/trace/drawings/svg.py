"""Make parts of SVG drawings: escaped text and its width, paths, the document, and the style sheet.

No attribute has styles, so that a page with a strict content security policy can include a drawing. The page includes
`STYLE` in its own style sheet, and a standalone drawing includes it too.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

__all__ = [
    "STYLE",
    "Point",
    "arrow_head",
    "clean",
    "document",
    "dot",
    "group",
    "line",
    "rectangle",
    "shortened",
    "text",
    "width",
]

CHAR: Final = 8.0
"""The width to reserve for a character; most of the fonts in `STYLE` are narrower."""

_MAX_LABEL_CHARS: Final = 48
_HEAD: Final = 8.0
_HALF_HEAD: Final = 4.0
_RADIUS: Final = 7.0

STYLE: Final = """\
.rt-drawing {
  --rt-paper: #ffffff; --rt-ink: #1f2933; --rt-quiet: #7b8794; --rt-fill: #f5f7fa;
  --rt-mark: #0b6bcb; --rt-here: #fff3c4;
  background: var(--rt-paper); color: var(--rt-ink);
}
@media (prefers-color-scheme: dark) {
  .rt-drawing {
    --rt-paper: #14181d; --rt-ink: #e4e7eb; --rt-quiet: #8a97a5; --rt-fill: #222a33;
    --rt-mark: #6cb8ff; --rt-here: #4a3d0c;
  }
}
.rt-drawing text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: currentColor; }
.rt-drawing .rt-middle { text-anchor: middle; }
.rt-drawing .rt-small { font-size: 12px; fill: var(--rt-quiet); }
.rt-drawing .rt-title { font-weight: bold; }
.rt-drawing .rt-box { fill: var(--rt-fill); stroke: currentColor; stroke-width: 1.2; }
.rt-drawing .rt-inner, .rt-drawing .rt-frame { fill: none; stroke: var(--rt-quiet); stroke-width: 1; }
.rt-drawing .rt-final .rt-inner, .rt-drawing .rt-tool .rt-inner { stroke: currentColor; }
.rt-drawing .rt-question .rt-box { stroke-width: 2; stroke: var(--rt-mark); }
.rt-drawing .rt-line { fill: none; stroke: var(--rt-quiet); stroke-width: 1.2; }
.rt-drawing .rt-outcome .rt-line { stroke-dasharray: 5 4; }
.rt-drawing .rt-head { fill: var(--rt-quiet); }
.rt-drawing .rt-dot { fill: var(--rt-mark); visibility: hidden; }
.rt-drawing .rt-back { fill: var(--rt-paper); }
.rt-drawing .rt-label text { fill: var(--rt-quiet); font-size: 12px; }
.rt-drawing .rt-visited .rt-line { stroke: var(--rt-mark); stroke-width: 3.4; }
.rt-drawing .rt-visited .rt-head { fill: var(--rt-mark); }
.rt-drawing .rt-visited .rt-dot { visibility: visible; }
.rt-drawing .rt-label.rt-visited text { fill: currentColor; font-weight: bold; }
.rt-drawing .rt-current .rt-box { fill: var(--rt-here); stroke: var(--rt-mark); stroke-width: 3.4; }
.rt-drawing .rt-current .rt-dot { visibility: visible; }
.rt-drawing .rt-current text { font-weight: bold; }
"""
"""The style sheet of every drawing, for light and dark. Visited arrows are thicker and dotted at their start."""


@dataclass(frozen=True, slots=True)
class Point:
    """Point on the drawing."""

    x: float
    y: float


def clean(raw: str) -> str:
    """Replace characters that XML cannot hold, or that rearrange the text beside them, with U+FFFD."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in raw)


def shortened(raw: str) -> str:
    """Clean a text, and cut it if it would make a drawing too wide."""
    cleaned = clean(raw)
    return cleaned if len(cleaned) <= _MAX_LABEL_CHARS else cleaned[: _MAX_LABEL_CHARS - 1] + "…"


def width(shown: str) -> float:
    """Return the width to reserve for a text, rather too much than too little."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" or ord(char) > 0xFFFF for char in shown)
    return CHAR * (len(shown) + wide)


def group(name: str, content: Sequence[str], *, title: str = "", **data: str) -> str:
    """Group elements under some class names, with a title for screen readers."""
    attributes = "".join(f' data-{key}="{escape(clean(value))}"' for key, value in data.items())
    heading = f"<title>{escape(clean(title))}</title>" if title else ""
    return f'<g class="{name}"{attributes}>{heading}{"".join(content)}</g>'


def rectangle(name: str, corner: Point, size: Point, *, radius: float = 0, inset: float = 0) -> str:
    """Draw a rectangle from its upper left corner, smaller by `inset` on every side."""
    place = f'x="{corner.x + inset:g}" y="{corner.y + inset:g}"'
    measures = f'width="{size.x - 2 * inset:g}" height="{size.y - 2 * inset:g}"'
    return f'<rect class="{name}" {place} {measures} rx="{radius:g}"/>'


def dot(name: str, middle: Point, radius: float = 5) -> str:
    """Draw a circle."""
    return f'<circle class="{name}" cx="{middle.x:g}" cy="{middle.y:g}" r="{radius:g}"/>'


def text(shown: str, place: Point, name: str = "") -> str:
    """Draw a line of text, vertically centered on a place."""
    classes = f' class="{name}"' if name else ""
    return f'<text{classes} x="{place.x:g}" y="{place.y + 4.5:g}">{escape(clean(shown))}</text>'


def line(points: Sequence[Point]) -> str:
    """Draw a path through some points, with rounded corners."""
    steps = [f"M{points[0].x:g} {points[0].y:g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before), _towards(corner, after)
        steps.append(f"L{start.x:g} {start.y:g}Q{corner.x:g} {corner.y:g} {end.x:g} {end.y:g}")
    steps.append(f"L{points[-1].x:g} {points[-1].y:g}")
    return f'<path class="rt-line" d="{"".join(steps)}"/>'


def _towards(corner: Point, other: Point) -> Point:
    """Return the point where a rounded corner begins on one of its lines, at most at the middle of the line."""
    across, down = other.x - corner.x, other.y - corner.y
    length = abs(across) + abs(down)
    share = min(_RADIUS, length / 2) / length if length else 0
    return Point(corner.x + across * share, corner.y + down * share)


def arrow_head(tip: Point, before: Point) -> str:
    """Draw the head of a horizontal or vertical arrow, which comes from another point."""
    if tip.x == before.x:
        base = tip.y - _HEAD if tip.y > before.y else tip.y + _HEAD
        corners = f"L{tip.x - _HALF_HEAD:g} {base:g}L{tip.x + _HALF_HEAD:g} {base:g}Z"
    else:
        base = tip.x - _HEAD if tip.x > before.x else tip.x + _HEAD
        corners = f"L{base:g} {tip.y - _HALF_HEAD:g}L{base:g} {tip.y + _HALF_HEAD:g}Z"
    return f'<path class="rt-head" d="M{tip.x:g} {tip.y:g}{corners}"/>'


def document(content: Sequence[str], size: Point, *, title: str, description: str, standalone: bool) -> str:
    """Return the whole drawing; a standalone one includes its styles."""
    head = f"<title>{escape(clean(title))}</title><desc>{escape(clean(description))}</desc>"
    styles = f"<style>\n{STYLE}</style>" if standalone else ""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="rt-drawing" role="img" width="{size.x:g}" '
            f'height="{size.y:g}" viewBox="0 0 {size.x:g} {size.y:g}">{head}{styles}',
            *content,
            "</svg>",
        ]
    )
