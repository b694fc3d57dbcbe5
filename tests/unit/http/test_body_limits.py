"""Requests with too many JSON values to be parsed while others wait."""

import json
from typing import Any

import httpx
import pytest

from roundtrip import Server
from roundtrip.http.connections import MAX_JSON_VALUES, has_too_many_values
from tests.kit.waiting import WAIT

MANY = MAX_JSON_VALUES + 2


CROWDS: list[Any] = [
    [1] * MANY,
    [[]] * MANY,
    [{}] * MANY,
    [""] * MANY,
    [[["a\\"]]] * MANY,
    {f"{number:x}": 1 for number in range(MANY)},
    ['"', "\\", '\\"', "\\\\"] * MANY,
]


def test_many_values_are_too_many() -> None:
    spelled = [json.dumps(crowd, separators=separators) for crowd in CROWDS for separators in (None, (",", ":"))]
    assert [text[:40] for text in spelled if not has_too_many_values(text.encode())] == []


LONG_TEXTS: list[Any] = [
    "a" * 2**22,
    json.dumps([[1, {}]] * MANY),
    "[,{" * MANY,
    '\\"[,{' * MANY,
    "\\" * MANY + "[[[" * MANY,
    ["[" * 1000] * 1000,
    [1] * (MAX_JSON_VALUES - 10),
    {"a": [{"b": 1.5}] * 10_000},
]


def test_long_texts_are_not() -> None:
    spelled = [json.dumps(value, indent=indent) for value in LONG_TEXTS for indent in (None, 1)]
    assert [text[:40] for text in spelled if has_too_many_values(text.encode())] == []


@pytest.mark.anyio
@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_application_rejects_requests_with_too_many_values(version: str) -> None:
    server = Server("shop", keys=["7f" * 32])
    transport = httpx.ASGITransport(server.streamable_http_app())
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"x": [[]] * MANY}}
    headers = {"accept": "*/*", "mcp-protocol-version": version}
    async with (
        server.session_manager.run(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost:8000", timeout=WAIT) as http,
    ):
        assert (await http.post("/mcp", json=body, headers=headers)).status_code == 413
