"""The check of a flame graph as the script of the benchmarks draws it."""

import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.kit.hosts import ROOT

__all__ = ["check_flame_graph"]

_MAX_BYTES: Final = 200_000


def check_flame_graph(image: Path) -> str:
    """Check that an image is small and stands alone, and return its text."""
    text = image.read_text(encoding="utf-8")
    assert len(text.encode()) < _MAX_BYTES
    ElementTree.fromstring(text)
    assert "Starlette.__call__" in text
    # Nothing of the machine on which it was drawn, and nothing that a viewer would load.
    words = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"site-packages|href|url\(|://|[ >\"]/\w", words)
    assert str(ROOT) not in words
    return text
