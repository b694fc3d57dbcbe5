"""Owners of tokens: real bearer tokens over HTTP, and one user's call in another user's hands."""

import re
from typing import Any

import httpx2
import pytest
from mcp.server.auth.settings import AuthSettings
from mcp.shared.exceptions import MCPError
from pydantic import AnyHttpUrl

from roundtrip import Server
from roundtrip.testing import Era, LegByLeg, Steps, User, served
from tests.interaction.pages.web import Badges, as_user
from tests.interaction.protocol.frozen import FROZEN
from tests.kit.bookshop import bookshop
from tests.kit.players import text_of

pytestmark = pytest.mark.anyio
ORDER = {"title": "Dune"}


def guarded(trace: Steps | None = None, **options: Any) -> Server[Any]:
    auth = AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None)
    return bookshop(auth=auth, token_verifier=Badges(), trace=trace, **options)


async def begin(url: str, badge: str) -> str:
    async with as_user(url, badge) as transport:
        hopper = LegByLeg([transport])
        await hopper.leg("order", ORDER)
        return hopper.token


async def finish(url: str, badge: str, token: str) -> Any:
    async with as_user(url, badge) as transport:
        return await LegByLeg([transport]).leg("order", ORDER, answers={"how_many": {"copies": 1}}, state=token)


async def test_token_works_only_for_its_user(caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    trace = Steps()
    async with served(guarded(trace), stateless_http=True) as url:
        token = await begin(url, "app/ada")
        trace.transitions.clear()
        for thief in ("app/eve", "other/ada"):
            with pytest.raises(MCPError) as caught:
                await finish(url, thief, token)
            assert caught.value.error == FROZEN
        assert trace.events == []
        assert text_of(await finish(url, "app/ada", token)) == "1 x Dune, now"
    assert [rejection.reason for rejection in trace.rejections] == ["another principal"] * 2
    assert "another principal" in caplog.text
    assert "ada" not in caplog.text


async def test_anonymous_binding_must_be_explicit_and_then_holds() -> None:
    async with served(guarded(principal=False), stateless_http=True) as url:
        result = await finish(url, "app/eve", await begin(url, "app/ada"))
    assert text_of(result) == "1 x Dune, now"


async def test_request_without_a_badge_is_rejected_first(era: Era) -> None:
    async with served(guarded()) as url:
        async with httpx2.AsyncClient() as client:
            response = await client.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert response.status_code == 401
        async with as_user(url, "app/ada") as transport:
            user = User(transport, {re.compile("How many"): {"copies": 2}}, era=era)
            assert (await user.call("order", ORDER)).text == "2 x Dune, now"
