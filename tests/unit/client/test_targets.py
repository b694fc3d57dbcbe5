"""Targets are read from a command line."""

import pytest

from roundtrip.client.failures import CallFailed
from roundtrip.client.targets import target_of


def test_an_address_or_a_command_is_a_target() -> None:
    assert target_of("https://cinema.example/mcp").url == "https://cinema.example/mcp"
    assert target_of("python -m 'my shop'").command == ("python", "-m", "my shop")


@pytest.mark.parametrize("text", ["ftp://cinema.example", "ws://cinema.example/mcp", "HTTP+unix://cinema"])
def test_non_http_address_is_not_run_as_a_command(text: str) -> None:
    with pytest.raises(CallFailed, match=r"is not an http\(s\) address"):
        target_of(text)


@pytest.mark.parametrize("text", ["http://[::1:8000/mcp", "http://shop:99999/mcp", "http://shop:x/mcp", "https:///mcp"])
def test_unreadable_address_is_reported_before_asking(text: str) -> None:
    with pytest.raises(CallFailed, match="the address"):
        target_of(text)
