"""The ladder of a server: its rungs, and the ways that it finds for a client."""

from collections.abc import Collection
from typing import Any, Final

import pytest
from mcp_types import (
    ClientCapabilities,
    ElicitationCapability,
    FormElicitationCapability,
    UrlElicitationCapability,
)
from starlette.requests import Request

from roundtrip import Pages
from roundtrip.engine.ways import Ways
from roundtrip.server.ladder import RUNGS, Ladder

BASE: Final = "https://shop.example"
FORM: Final = ElicitationCapability(form=FormElicitationCapability())
URL: Final = ElicitationCapability(url=UrlElicitationCapability())
BOTH: Final = ElicitationCapability(form=FormElicitationCapability(), url=UrlElicitationCapability())
BARE: Final = ElicitationCapability()


async def reader(request: Request) -> str | None:
    return None


ALL: Final = Pages(base_url=BASE, authenticate=reader, local=True)


def ladder(given: Collection[Any] | None = RUNGS, pages: Pages | None = ALL) -> Ladder:
    return Ladder.of(given, pages, knows_users=True)


def ways(found: Ladder, elicitation: ElicitationCapability | None, **facts: Any) -> Ways:
    given: dict[str, Any] = {"asked": 0, "knows_user": True, "is_live": False, "can_open_locally": False, **facts}
    return found.ways(ClientCapabilities(elicitation=elicitation), **given)


@pytest.mark.parametrize(
    ("pages", "rungs"),
    [
        (None, {"form"}),
        (Pages(local=True), {"form", "local"}),
        (Pages(local=True, authenticate=reader), {"form", "local"}),
        (Pages(base_url=BASE), {"form", "url"}),
        (Pages(base_url=BASE, authenticate=reader), {"form", "url", "link"}),
        (ALL, {"form", "local", "url", "link"}),
    ],
)
def test_default_ladder_has_the_rungs_of_its_pages(pages: Pages | None, rungs: set[str]) -> None:
    assert ladder(None, pages).rungs == rungs


@pytest.mark.parametrize("elicitation", [None, URL])
@pytest.mark.parametrize("is_live", [True, False])
def test_page_of_the_machine_comes_before_other_pages_and_the_model(
    elicitation: ElicitationCapability | None, *, is_live: bool
) -> None:
    found = ways(ladder(), elicitation, is_live=is_live, can_open_locally=True)
    assert found == Ways("local", model=False, is_live=is_live)


@pytest.mark.parametrize(
    ("elicitation", "page", "model"), [(None, "link", True), (URL, "url", False), (BARE, None, False)]
)
def test_client_whose_browser_cannot_open_takes_the_next_rung(
    elicitation: ElicitationCapability | None, page: str | None, *, model: bool
) -> None:
    found = ways(ladder(), elicitation)
    assert (found.page, found.model) == (page, model)


@pytest.mark.parametrize(
    ("elicitation", "for_links"), [(FORM, "link"), (BARE, "link"), (BOTH, None), (URL, None), (None, None)]
)
def test_client_with_forms_alone_has_a_page_for_links(
    elicitation: ElicitationCapability | None, for_links: str | None
) -> None:
    assert ways(ladder(), elicitation).for_links == for_links
    assert ways(ladder(), FORM, can_open_locally=True).for_links == "local"
    assert ways(ladder(), FORM, knows_user=False).for_links is None


def test_client_with_links_gets_no_page_that_opens_for_nobody() -> None:
    assert ways(ladder(), URL, knows_user=False).page is None
    assert ways(ladder(["url"], Pages(base_url=BASE)), URL, knows_user=False).page == "url"


def test_page_of_the_machine_is_used_only_if_the_ladder_has_it() -> None:
    without = [rung for rung in RUNGS if rung != "local"]
    assert ways(ladder(without), None, can_open_locally=True).page == "link"


@pytest.mark.parametrize(("elicitation", "first"), [(FORM, 9), (BARE, 9), (BOTH, 6)])
@pytest.mark.parametrize("pages", [ALL, Pages(local=True)])
def test_forms_are_used_before_the_page_of_the_machine(
    elicitation: ElicitationCapability, first: int, pages: Pages
) -> None:
    found = ladder(None, pages)
    local = [
        asked for asked in range(12) if ways(found, elicitation, asked=asked, can_open_locally=True).page == "local"
    ]
    assert local == list(range(first, 12))


def test_forms_off_the_ladder_leave_the_page_of_the_machine() -> None:
    assert ways(ladder(["local"]), FORM, can_open_locally=True).page == "local"


@pytest.mark.parametrize("rungs", [["local"], ["model"], ["form", "link"]])
def test_rung_with_a_handle_in_the_result_changes_what_is_listed(rungs: list[Any]) -> None:
    assert ladder(rungs).has_results
    assert not ladder(["form", "url"]).has_results
