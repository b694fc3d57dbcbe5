"""A server over HTTP warns if every client may read the texts of its errors."""

import logging

import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from roundtrip import Server

KEYS = ["7f" * 32]


class _Tokens:
    async def verify_token(self, token: str) -> AccessToken | None:
        del token
        return None


def _warnings(server: Server, caplog: pytest.LogCaptureFixture) -> int:
    with caplog.at_level(logging.WARNING, "roundtrip"):
        for _ in range(2):
            server.streamable_http_app()
            server.sse_app()
    return caplog.text.count("has no authentication")


@pytest.mark.parametrize(("mask", "times"), [(None, 1), (False, 1), (True, 0)])
def test_open_server_that_shows_errors_says_so_once(
    mask: bool | None, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert _warnings(Server("shop", keys=KEYS, mask_error_details=mask), caplog) == times


def test_server_with_authentication_may_show_errors(caplog: pytest.LogCaptureFixture) -> None:
    auth = AuthSettings(issuer_url=AnyHttpUrl("https://a.example"), resource_server_url=None)
    assert _warnings(Server("shop", keys=KEYS, auth=auth, token_verifier=_Tokens()), caplog) == 0
