"""Server channels, and the ways that they find for a client."""

from collections.abc import Collection
from itertools import product
from typing import Any, Final

from mcp_types import (
    ClientCapabilities,
    ElicitationCapability,
    FormElicitationCapability,
    UrlElicitationCapability,
)
from starlette.requests import Request

from roundtrip import Pages
from roundtrip.channels.server_channels import CHANNELS, ServerChannels
from roundtrip.engine.ports import Channels
from tests.kit.tables import check_each

BASE: Final = "https://shop.example"
FORM: Final = ElicitationCapability(form=FormElicitationCapability())
URL: Final = ElicitationCapability(url=UrlElicitationCapability())
BOTH: Final = ElicitationCapability(form=FormElicitationCapability(), url=UrlElicitationCapability())
BARE: Final = ElicitationCapability()


async def reader(request: Request) -> str | None:
    return None


ALL: Final = Pages(base_url=BASE, authenticate=reader, local=True)


def server_channels(given: Collection[Any] | None = CHANNELS, pages: Pages | None = ALL) -> ServerChannels:
    return ServerChannels.of(given, pages, knows_users=True)


def channels(found: ServerChannels, elicitation: ElicitationCapability | None, **facts: Any) -> Channels:
    given: dict[str, Any] = {"asked": 0, "knows_user": True, "is_live": False, "can_open_locally": False, **facts}
    return found.channels(ClientCapabilities(elicitation=elicitation), **given)


def test_default_channels_are_those_of_the_pages() -> None:
    def check(pages: Pages | None, names: set[str]) -> None:
        assert server_channels(None, pages).names == names

    defaults: list[tuple[Pages | None, set[str]]] = [
        (None, {"form"}),
        (Pages(local=True), {"form", "local"}),
        (Pages(local=True, authenticate=reader), {"form", "local"}),
        (Pages(base_url=BASE), {"form", "url"}),
        (Pages(base_url=BASE, authenticate=reader), {"form", "url", "app", "link"}),
        (Pages(base_url=BASE, authenticate=reader, app=False), {"form", "url", "link"}),
        (ALL, {"form", "local", "url", "app", "link"}),
    ]
    check_each(defaults, check)


def test_page_of_the_machine_comes_before_other_pages_and_the_model() -> None:
    def check(elicitation: ElicitationCapability | None, is_live: bool) -> None:
        found = channels(server_channels(), elicitation, is_live=is_live, can_open_locally=True)
        assert found == Channels("local", model=False, is_live=is_live)

    check_each(product([None, URL], [True, False]), check)


def test_client_whose_browser_cannot_open_takes_the_next_channel() -> None:
    def check(elicitation: ElicitationCapability | None, page: str | None, model: bool) -> None:
        found = channels(server_channels(), elicitation)
        assert (found.page, found.model) == (page, model)

    check_each([(None, "link", True), (URL, "url", False), (BARE, None, False)], check)


def test_client_with_forms_alone_has_a_page_for_links() -> None:
    given = (FORM, BARE, BOTH, URL, None)
    assert [channels(server_channels(), one).for_links for one in given] == ["link", "link", None, None, None]
    assert channels(server_channels(), FORM, can_open_locally=True).for_links == "local"
    assert channels(server_channels(), FORM, knows_user=False).for_links is None


def test_client_with_links_gets_no_page_that_opens_for_nobody() -> None:
    assert channels(server_channels(), URL, knows_user=False).page is None
    assert channels(server_channels(["url"], Pages(base_url=BASE)), URL, knows_user=False).page == "url"


def test_page_of_the_machine_is_used_if_the_server_channels_has_it() -> None:
    without = [name for name in CHANNELS if name != "local"]
    assert channels(server_channels(without), None, can_open_locally=True).page == "link"
    assert channels(server_channels(["local"]), FORM, can_open_locally=True).page == "local"


def test_forms_are_used_before_the_page_of_the_machine() -> None:
    def check(elicitation: ElicitationCapability, first: int, pages: Pages) -> None:
        found = server_channels(None, pages)
        local = [n for n in range(12) if channels(found, elicitation, asked=n, can_open_locally=True).page == "local"]
        assert local == list(range(first, 12))

    check_each([(FORM, 9, ALL), (BARE, 9, ALL), (BOTH, 6, ALL), (FORM, 9, Pages(local=True))], check)


def test_channel_with_a_handle_in_the_result_changes_what_is_listed() -> None:
    given: list[list[Any]] = [["local"], ["model"], ["form", "link"], ["form", "url"]]
    assert [server_channels(each).has_results for each in given] == [True, True, True, False]
