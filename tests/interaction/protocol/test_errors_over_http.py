"""A server over HTTP warns if every client may read the texts of its errors."""

import logging

import pytest
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from roundtrip import Server
from tests.interaction.pages.web import Badges

KEYS = ["7f" * 32]


def _warnings(server: Server, caplog: pytest.LogCaptureFixture) -> int:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "roundtrip"):
        for _ in range(2):
            server.streamable_http_app()
            server.sse_app()
    return caplog.text.count("has no authentication")


def test_open_server_that_shows_errors_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    auth = AuthSettings(issuer_url=AnyHttpUrl("https://a.example"), resource_server_url=None)
    servers = {
        "open": Server("shop", keys=KEYS),
        "unmasked": Server("shop", keys=KEYS, mask_error_details=False),
        "masked": Server("shop", keys=KEYS, mask_error_details=True),
        "with authentication": Server("shop", keys=KEYS, auth=auth, token_verifier=Badges()),
    }
    times = {name: _warnings(server, caplog) for name, server in servers.items()}
    assert times == {"open": 1, "unmasked": 1, "masked": 0, "with authentication": 0}
