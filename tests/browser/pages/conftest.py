"""Provide shops with question pages."""

from collections.abc import Generator

import pytest

from tests.browser.pages.shop import PageShop, page_shop


@pytest.fixture(scope="module")
def _running_shop() -> Generator[PageShop]:
    with page_shop() as shop:
        yield shop


@pytest.fixture
def shop(_running_shop: PageShop) -> PageShop:
    _running_shop.calls.calls.clear()
    return _running_shop
