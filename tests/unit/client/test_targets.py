"""Targets are read from a command line."""

import pytest

from roundtrip.client.failures import CallFailed
from roundtrip.client.targets import target_of


def test_an_address_or_a_command_is_a_target() -> None:
    assert target_of("https://cinema.example/mcp").url == "https://cinema.example/mcp"
    assert target_of("python -m 'my shop'").command == ("python", "-m", "my shop")


def test_other_addresses_are_reported_and_not_run_as_commands() -> None:
    for text in ("ftp://cinema.example", "ws://cinema.example/mcp", "HTTP+unix://cinema"):
        with pytest.raises(CallFailed, match=r"is not an http\(s\) address"):
            target_of(text)
    for text in ("http://[::1:8000/mcp", "http://shop:99999/mcp", "http://shop:x/mcp", "https:///mcp"):
        with pytest.raises(CallFailed, match="the address"):
            target_of(text)
