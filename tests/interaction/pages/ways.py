"""Ways of asking that the tests of pages try: where the question stands, eras, and kinds of stores."""

from typing import Final

import pytest

from roundtrip.testing import Era
from tests.kit.programs import needs
from tests.kit.visitors import PLACES

__all__ = ["BOOK", "URL", "kinds", "modes", "places", "ways"]

URL: Final = "https://bookshop.example/login"
BOOK: Final = {"title": "Dune"}

modes = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
places = pytest.mark.parametrize("place", PLACES)
ways = pytest.mark.parametrize(("place", "era"), [("resolver", Era.LIVE), ("body", Era.RETRY)])
"""Each place and each era once, for what does not depend on both together."""
kinds = pytest.mark.parametrize(
    "kind",
    [
        "memory",
        "sqlite",
        pytest.param("redis", marks=needs("redis")),
        pytest.param("postgres", marks=needs("postgres")),
    ],
)
