"""Reports: a table for people, and JSON for programs."""

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from benchmarks.intervals import ratio_interval
from benchmarks.measure import Figure, Line
from benchmarks.scenarios import Unit
from benchmarks.variants import Variant

BASELINE: Final = "sdk"
"""The baseline for ratios."""

_PACKAGES: Final = ("mcp", "fastmcp", "roundtrip", "pydantic", "starlette", "anyio")


def table(lines: Sequence[Line], variants: Sequence[Variant]) -> str:
    """Return a table with medians, their ratio to the baseline, and that ratio's interval."""
    header = ["", *(cell for variant in variants for cell in (variant.title, "", ""))]
    second = ["", *(cell for _ in variants for cell in ("median", f"/{BASELINE}", "95 %"))]
    grid = [header, second, *([line.row.title, *_cells(line, variants)] for line in lines)]
    widths = [max(len(row[column]) for row in grid[1:]) for column in range(len(header))]
    for index in range(1, len(header), 3):
        # A title spans its variant's three columns.
        widths[index] = max(widths[index], len(header[index]) - sum(widths[index + 1 : index + 3]) - 2)
    rendered = [_aligned(row, widths) for row in (second, *grid[2:])]
    spans = [f"{header[index]:^{sum(widths[index : index + 3]) + 2}}" for index in range(1, len(header), 3)]
    notes = [f"{variant.title}: {variant.note}" for variant in variants]
    rule = "-" * len(rendered[0])
    return "\n".join(
        ["   ".join([" " * widths[0], *spans]).rstrip(), rendered[0], rule, *rendered[1:], "", *notes, origin()]
    )


def as_json(lines: Sequence[Line], variants: Sequence[Variant]) -> str:
    """Return every sample, with what is needed to compare two runs."""
    document: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "packages": _versions(),
        "baseline": BASELINE,
        "variants": {variant.name: variant.title for variant in variants},
        "rows": [
            {
                "name": line.row.name,
                "title": line.row.title,
                "unit": line.row.unit.value,
                "figures": {
                    name: {
                        "median": figure.median,
                        "min": figure.least,
                        "ratio": _ratio(figure, line.figures.get(BASELINE)) if line.row.is_compared else None,
                        "samples": list(figure.samples),
                    }
                    for name, figure in line.figures.items()
                },
            }
            for line in lines
        ],
    }
    return json.dumps(document, indent=2)


def _cells(line: Line, variants: Sequence[Variant]) -> list[str]:
    cells: list[str] = []
    for variant in variants:
        figure = line.figures.get(variant.name)
        if figure is None:
            cells += ["-", "", ""]
            continue
        baseline = line.figures.get(BASELINE)
        cells.append(shown(figure.median, line.row.unit))
        if baseline is None or baseline is figure or not line.row.is_compared:
            cells += ["", ""]
            continue
        ratio = ratio_interval(figure.samples, baseline.samples)
        cells += [f"{ratio.figure:.2f}", f"{ratio.low:.2f}-{ratio.high:.2f}"]
    return cells


def _ratio(figure: Figure, baseline: Figure | None) -> float | None:
    return None if baseline is None else figure.median / baseline.median


def shown(value: float, unit: Unit) -> str:
    """Return a value with its unit, in short form."""
    if unit is Unit.PER_SECOND:
        return f"{value:.0f}/s"
    if unit is Unit.RATIO:
        return f"{value:.2f}"
    if unit is Unit.BYTES:
        return f"{value:.0f} B" if value < 100_000 else f"{value / 2**20:.1f} MB"
    microseconds = value / 1_000
    return f"{microseconds:.0f} µs" if microseconds < 10_000 else f"{microseconds / 1_000:.1f} ms"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)]
    groups = (" ".join(cells[index : index + 3]) for index in range(1, len(cells), 3))
    return "   ".join([f"{row[0]:<{widths[0]}}", *groups])


def origin() -> str:
    """Return the machine and the versions that were measured."""
    packages = ", ".join(f"{name} {number}" for name, number in _versions().items())
    return f"CPython {platform.python_version()}, {os.cpu_count()} cores; {packages}"


def _versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
