"""Approvals: other people decide a call, which waits in the store, and its caller cannot."""

from typing import Any

import pytest
from mcp_types import (
    ElicitationCapability,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    FormElicitationCapability,
)

from tests.interaction.pages.approving import Person, open_shop
from tests.interaction.pages.test_question_pages import client_of, declare_only, handle_in, text_of

pytestmark = pytest.mark.anyio

modes = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])


async def result_of(client: Any, asked: Any) -> Any:
    return await client.call_tool("continue_call", {"handle": handle_in(asked)})


@modes
async def test_confirmation_is_approved_by_others(mode: str) -> None:
    async with open_shop() as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("refund", {"amount": 5, "note": "damaged"})
        assert "finance" in text_of(asked)
        assert not asked.is_error
        await Person(url, "fay").decide("approve")
        assert text_of(await result_of(client, asked)) == "refunded 5"


@modes
async def test_resolver_receives_the_approval(mode: str) -> None:
    async with open_shop() as url, client_of(url, mode=mode) as client:
        asked = await client.call_tool("refund_all", {"order": "Emma"})
        await Person(url, "fred").decide("approve", "damaged")
        assert text_of(await result_of(client, asked)) == "refunded Emma, as fred says: damaged"


async def fill_in(context: Any, params: Any) -> ElicitResult:
    """Answer a form, and agree to open an address."""
    is_form = isinstance(params, ElicitRequestFormParams)
    return ElicitResult(action="accept", content={"value": 3} if is_form else None)


@modes
async def test_body_reads_a_rejection(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_only(monkeypatch, ElicitationCapability(form=FormElicitationCapability()))
    async with open_shop() as url, client_of(url, mode=mode, elicitation_callback=fill_in) as client:
        asked = await client.call_tool("partly", {"order": "Emma"})
        await Person(url, "fred").decide("reject", "no receipt")
        assert text_of(await result_of(client, asked)) == "rejected by fred: no receipt"


async def test_client_that_shows_links_gets_a_page_that_says_who_decides() -> None:
    pages: list[str] = []

    async def elicited(context: Any, params: Any) -> ElicitResult:
        if isinstance(params, ElicitRequestURLParams):
            page = await Person(url, "ann").get(params.url)
            pages.append(page.text)
            assert (await Person(url, "fay").get(params.url)).status_code == 404
            await Person(url, "fay").decide("approve")
        return await fill_in(context, params)

    async with open_shop() as url, client_of(url, elicitation_callback=elicited) as client:
        result = await client.call_tool("partly", {"order": "Emma"})
        assert text_of(result) == "refunded 3 of Emma, as fay says"
    assert len(pages) == 1
    assert "finance" in pages[0]
    assert "<form" not in pages[0]
