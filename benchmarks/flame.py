"""Draw a flame graph in SVG that shows where a leg's time goes: `python -m benchmarks.flame`.

The server serves one leg again and again over raw ASGI. About a thousand times a second, a timer interrupts it and
records the functions on the stack. A C function counts for the Python function that calls it.
"""

import argparse
import asyncio
import logging
import signal
import sys
import sysconfig
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from time import perf_counter
from types import CodeType, FrameType
from typing import Final

import roundtrip
from benchmarks.asgi import Endpoint, serving
from benchmarks.variants.roundtrip_server import build
from benchmarks.wire import call
from benchmarks.workloads import Workload, confirm, plain

__all__ = ["Node", "drawn", "sampled", "shares"]

LEGS: Final[dict[str, tuple[str, Workload]]] = {
    "plain-call": ("A plain call", plain()),
    "ask-leg": ("The first leg of a call with one question", confirm()),
}

_INTERVAL: Final = 0.001
_WARM_UP: Final = 300
_ROOTS: Final = sorted(
    {Path(roundtrip.__file__).parent.parent, *map(Path, map(sysconfig.get_path, ("purelib", "platlib", "stdlib")))},
    key=lambda folder: -len(folder.parts),
)
"""Module folders. A folder may be inside another, so the deepest comes first."""

_PARTS: Final = (
    ("roundtrip: the fast lane", "#f4a259", ("roundtrip.http.fast_lane",)),
    ("roundtrip: tokens and the journal", "#e76f51", ("roundtrip.tokens", "roundtrip.machine.journal")),
    ("roundtrip: the leg", "#f6d365", ("roundtrip.engine", "roundtrip.machine", "roundtrip.resolvers")),
    ("roundtrip: the server around it", "#fbe8a6", ("roundtrip",)),
    ("the tool", "#c77dff", ("benchmarks.variants", "benchmarks.workloads")),
    ("SDK", "#8ecae6", ("mcp", "mcp_types")),
    ("Starlette", "#a7c957", ("starlette", "sse_starlette")),
    ("pydantic", "#b5b0d8", ("pydantic", "pydantic_core")),
    ("the standard library, other packages", "#d5d5d5", ("",)),
)
"""The parts of a leg: title, color and modules. A function belongs to the first part that has its module."""

_WIDTH: Final = 1200
_HEIGHT: Final = 18
_CHAR: Final = 6.7
_LEAST: Final = 0.0025
"""The smallest share that is drawn."""


@dataclass(slots=True)
class Node:
    """Function on a stack, with the functions that it called."""

    module: str
    name: str
    count: int = 0
    own: int = 0
    """Samples in which this function was on top."""
    lines: int = 0
    """The sum of the line numbers from which its caller called it, to draw calls in code order."""
    below: dict[CodeType, "Node"] = field(default_factory=dict["CodeType", "Node"])


@contextmanager
def _sampling(root: Node, top: CodeType) -> Generator[None]:
    """Sample the stack below the function `top` around the block."""

    def note(number: int, frame: FrameType | None) -> None:
        stack: list[FrameType] = []
        while frame is not None and frame.f_code is not top:
            stack.append(frame)
            frame = frame.f_back
        if frame is None or not stack or stack[-1].f_code.co_filename == top.co_filename:
            return  # between two legs
        node, line = root, 0
        node.count += 1
        for each in reversed(stack):
            code = each.f_code
            child = node.below.get(code)
            if child is None:
                module = _module(code.co_filename) or node.module
                child = node.below[code] = Node(module, code.co_qualname.replace(".<locals>", ""))
            child.count += 1
            child.lines += line
            node, line = child, each.f_lineno or 0  # Bytecode may have no line.
        node.own += 1

    before = signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, _INTERVAL, _INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def sampled(workload: Workload, *, seconds: float) -> Node:
    """Serve a call's first leg for some seconds, and return the functions that took the time."""
    root = Node("", "")
    async with serving(build(workload)) as endpoint:
        for _ in range(_WARM_UP):
            await _leg(endpoint)
        with _sampling(root, Endpoint.post.__code__):
            end = perf_counter() + seconds
            while perf_counter() < end:
                await _leg(endpoint)
    return root


async def _leg(endpoint: Endpoint) -> None:
    request = call()
    response = await endpoint.post(request.body, headers=request.headers)
    if response.status != 200:
        raise RuntimeError(f"HTTP {response.status}")


def shares(root: Node) -> dict[str, float]:
    """Return each part's share, by its title."""
    samples: Counter[str] = Counter()
    open_nodes = [root]
    while open_nodes:
        node = open_nodes.pop()
        samples[_part(node.module)[0]] += node.own
        open_nodes += node.below.values()
    return {title: samples[title] / root.count for title, _, _ in _PARTS}


def drawn(root: Node, title: str) -> str:
    """Draw the graph: callers above the functions that they call, time from left to right."""
    rows: list[str] = []
    depth = _draw(root, 0, 0.0, root.count, rows)
    legend: list[str] = []
    for number, (part, share) in enumerate(shares(root).items()):
        x, y = 10 + number % 3 * 395, 42 + number // 3 * 20
        legend.append(f'<rect x="{x}" y="{y}" width="14" height="14" fill="{_PARTS[number][1]}"/>')
        legend.append(f'<text x="{x + 20}" y="{y + 11}">{escape(part)}: {share:.0%}</text>')
    top = 42 + -(-len(_PARTS) // 3) * 20 + 10
    height = top + depth * _HEIGHT + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            "<style>text { font: 11px monospace; fill: #222 } .g rect { stroke: #fff; stroke-width: 0.6 }</style>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
            f'<text x="10" y="24" style="font-size: 16px">{escape(title)}</text>',
            *legend,
            f'<g class="g" transform="translate(0 {top})">',
            *rows,
            "</g>",
            "</svg>\n",
        ]
    )


def _draw(node: Node, depth: int, left: float, whole: int, rows: list[str]) -> int:
    """Draw everything below a node, and return the number of rows."""
    deepest = depth
    scale = (_WIDTH - 20) / whole
    for child in sorted(node.below.values(), key=lambda one: one.lines / one.count):
        width = child.count * scale
        if child.count / whole >= _LEAST:
            x, y = 10 + left, depth * _HEIGHT
            rows.append(
                f"<g><title>{escape(f'{child.module}.{child.name}')} {child.count / whole:.1%}</title>"
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_HEIGHT}" fill="{_part(child.module)[1]}"/>'
                + _text(child, x, y, width)
                + "</g>"
            )
            deepest = max(deepest, _draw(child, depth + 1, left, whole, rows), depth + 1)
        left += width
    return deepest


def _text(node: Node, x: float, y: float, width: float) -> str:
    fitting = int((width - 6) / _CHAR)
    if fitting < 4:
        return ""
    label = f"{node.module.rpartition('.')[2]}.{node.name}"
    if len(label) > fitting:
        label = node.name.rpartition(".")[2]
    if len(label) > fitting:
        label = label[: fitting - 1] + "…"
    return f'<text x="{x + 3:.1f}" y="{y + 13}">{escape(label)}</text>'


def _part(module: str) -> tuple[str, str, Sequence[str]]:
    return next(part for part in _PARTS if any(module.startswith(name) for name in part[2]))


def _module(file: str) -> str:
    """Return a file's module name without the installation folder, or an empty text for generated code."""
    if file.startswith("<frozen "):
        return file.removeprefix("<frozen ").removesuffix(">")
    path = Path(file)
    for root in _ROOTS:
        if path.is_relative_to(root):
            return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flame", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="time for each leg (default 20)")
    parser.add_argument("--into", type=Path, default=Path("docs/images"), help="folder of the files")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    measured: dict[str, dict[str, float]] = {}
    for name, (title, workload) in LEGS.items():
        root = asyncio.run(sampled(workload, seconds=options.seconds))
        if not root.count:
            sys.exit("no samples; raise --seconds")
        measured[name] = shares(root)
        (options.into / f"{name}.svg").write_text(drawn(root, title), encoding="utf-8")
    print("| part | plain call | ask leg |\n|---|---|---|")
    for part, _, _ in _PARTS:
        print(f"| {part} | " + " | ".join(f"{one[part]:.0%}" for one in measured.values()) + " |")


if __name__ == "__main__":
    main()
