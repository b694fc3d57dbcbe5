"""The library of the examples, mounted in three frameworks: lifespan, authentication and path prefix, on both eras."""

import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.types import ASGIApp

from roundtrip.testing import Era
from tests.kit.hosts import hosted
from tests.kit.players import Person, connect, text_of

pytestmark = pytest.mark.anyio

LIBRARY: Final = "examples.mounting.library"


class Mounted:
    """An application of the examples, and the library that it serves."""

    def __init__(self, name: str) -> None:
        # Each application runs in a process of its own, so each has its own server.
        sys.modules.pop(LIBRARY, None)
        self.library: ModuleType = import_module(LIBRARY)
        self.app: ASGIApp = import_module(f"examples.mounting.{name}").app


@pytest.fixture(scope="module", params=["in_starlette", "in_fastapi", "in_django"])
def mounted(request: pytest.FixtureRequest) -> Mounted:
    return Mounted(request.param)


@asynccontextmanager
async def borrowing(url: str, era: Era, user: str, person: Person | None = None) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer token-of-{user}"}) as web,
        connect(streamable_http_client(f"{url}/tools/mcp", http_client=web), era, person) as client,
    ):
        yield client


async def test_users_borrow_over_a_mounted_server_within_its_lifespan(
    mounted: Mounted, era: Era, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs: list[Any] = []
    make = mounted.library.Catalog

    def kept() -> Any:
        catalogs.append(make())
        return catalogs[-1]

    monkeypatch.setattr(mounted.library, "Catalog", kept)
    async with hosted(mounted.app) as url, httpx2.AsyncClient() as web:
        for user, copy in (("ada", "paper"), ("eve", "audio")):
            person = Person({"value": copy})
            async with borrowing(url, era, user, person) as client:
                assert [tool.name for tool in (await client.list_tools()).tools] == ["borrow"]
                said = text_of(await client.call_tool("borrow", {"title": "Emma"}))
                assert said == f"{user} has Emma ({copy})"
            assert person.messages == ["Which copy of Emma?"]
        # The application's own page has the same catalog.
        assert (await web.get(f"{url}/loans")).text.strip('"') == "Emma, Emma"
        assert [catalog.is_open for catalog in catalogs] == [True]
    assert [catalog.is_open for catalog in catalogs] == [False]


async def test_request_without_a_token_leads_to_the_metadata(mounted: Mounted) -> None:
    async with hosted(mounted.app) as url, httpx2.AsyncClient() as web:
        for token in ("", "Bearer token-of-bob"):
            rejected = await web.post(f"{url}/tools/mcp", json={}, headers={"Authorization": token})
            assert rejected.status_code == 401
            found = re.search(r'resource_metadata="http://127.0.0.1:8000(.+?)"', rejected.headers["www-authenticate"])
            assert found is not None
            metadata: Any = (await web.get(f"{url}{found[1]}")).json()
            assert metadata["resource"] == str(mounted.library.ENDPOINT)
        # The prefix is part of the path.
        assert (await web.post(f"{url}/mcp", json={})).status_code == 404
