"""The flame graphs of a leg that the pages show."""

from tests.kit.flame_graphs import check_flame_graph
from tests.kit.hosts import ROOT


def test_images_of_the_pages_are_self_contained() -> None:
    for name in ("plain-call.svg", "ask-leg.svg"):
        check_flame_graph(ROOT / "docs" / "images" / name)
