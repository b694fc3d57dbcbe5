"""Provide hosts of the app's view, and check that no view loads anything."""

from collections.abc import Generator

import pytest

from tests.browser.apps.shown import AppHost, AppShop, PlainHost, hosts
from tests.browser.conftest import Tab


@pytest.fixture(scope="package")
def base() -> Generator[str]:
    with hosts() as url:
        yield url


@pytest.fixture
def shop() -> AppShop:
    return AppShop()


@pytest.fixture
def host(tab: Tab, base: str, shop: AppShop) -> AppHost:
    return AppHost(tab.page, base, shop)


@pytest.fixture
def plain(tab: Tab, base: str) -> PlainHost:
    return PlainHost(tab.page, base)


@pytest.fixture(autouse=True)
def _nothing_is_loaded(tab: Tab, base: str) -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    # The proxy of the Inspector has another origin, on the same port.
    known = (base, base.replace("127.0.0.1", "localhost"), "data:", "about:srcdoc")
    assert [url for url in tab.requests if not url.startswith(known)] == []
