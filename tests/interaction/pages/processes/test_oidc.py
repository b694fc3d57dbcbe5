"""The example with OpenID Connect: a real provider, the SDK's client with its own login, and browsers that log in."""

import json
import re
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urljoin, urlsplit

import anyio
import httpx
import httpx2
import pytest
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp_types import CallToolResult
from pydantic import AnyUrl

from examples import oidc_pages
from roundtrip.testing import Era
from tests.clients.drivers import node_with
from tests.conformance.suite import NODE_MODULES
from tests.kit.hosts import WAIT, free_port, hosted
from tests.kit.html_forms import read_page
from tests.kit.page_users import handle_in
from tests.kit.players import text_of
from tests.kit.programs import needs

pytestmark = [pytest.mark.anyio, needs("node")]

CALLBACK: Final = "http://127.0.0.1:1/callback"
"""The address of the client's own program. Nothing listens there: the browser of these tests stops in front of it."""

_ACTION: Final = re.compile(r'<form[^>]* action="([^"]+)"')
_HIDDEN: Final = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')


@contextmanager
def provider(base_url: str) -> Generator[str]:
    """Run an OpenID provider that knows the pages at an address, and a client; yield its issuer."""
    port = free_port()
    web = {"client_id": "pages", "client_secret": "secret of the pages", "redirect_uris": [f"{base_url}/login"]}
    chat = {"client_id": "chat", "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none"}
    program = Path(__file__).parent / "oidc_provider.mjs"
    command = [node_with("oidc-provider"), str(program), str(NODE_MODULES), str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            json.dump({"clients": [web, chat]}, process.stdin)
            process.stdin.close()
            assert process.stdout.readline() == "ready\n"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture
async def site() -> AsyncGenerator[str]:
    """Serve the example, and yield its address."""
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    with provider(base_url) as issuer:
        app = oidc_pages.cinema(issuer, "pages", "secret of the pages", base_url)
        async with hosted(app, port=port):
            yield base_url


class Browser(httpx.AsyncClient):
    """Browser of one user, who logs in wherever a provider asks."""

    def __init__(self, user: str) -> None:
        super().__init__(timeout=WAIT)
        self._user = user

    async def open(self, url: str) -> httpx.Response:
        """Open an address, log in on the way, and return the page at the end, or the redirect to the client."""
        answer = await self.get(url)
        for _ in range(20):
            if answer.has_redirect_location:
                url = urljoin(str(answer.url), answer.headers["Location"])
                if url.startswith(CALLBACK):
                    return answer
                answer = await self.get(url)
            elif "/interaction/" in answer.url.path and (action := _ACTION.search(answer.text)):
                fields = dict(_HIDDEN.findall(answer.text))
                if 'name="login"' in answer.text:
                    fields |= {"login": self._user, "password": "any"}
                answer = await self.post(urljoin(str(answer.url), action[1]), data=fields)
            else:
                return answer
        raise AssertionError("the login has no end")

    async def fill(self, url: str, answer: str) -> httpx.Response:
        """Open a question page, and answer its only question."""
        form = read_page((await self.open(url)).text)
        (control,) = [each for each in form.controls if each.kind not in ("hidden", "button")]
        control.value = answer
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": origin}
        return await self.post(url, content=form.body(), headers=headers)


class Login:
    """Storage and browser of a client's own login."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._tokens: OAuthToken | None = None
        self._answer: dict[str, list[str]] = {}

    @property
    def issuers(self) -> list[str]:
        return self._answer["iss"]

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return OAuthClientInformationFull(client_id="chat", redirect_uris=[AnyUrl(CALLBACK)])

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("the client is registered already")

    async def go(self, url: str) -> None:
        async with Browser(self._user) as browser:
            answer = await browser.open(url)
        self._answer = parse_qs(urlsplit(answer.headers["Location"]).query)

    async def back(self) -> AuthorizationCodeResult:
        answer = {name: values[0] for name, values in self._answer.items()}
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))


@asynccontextmanager
async def logged_in(site: str, login: Login, era: Era) -> AsyncGenerator[Client]:
    """Connect the SDK's client, which finds the provider, and logs its user in."""
    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(CALLBACK)], token_endpoint_auth_method="none")
    auth: Any = OAuthClientProvider(f"{site}/mcp", metadata, login, login.go, login.back)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=WAIT) as web,
        Client(streamable_http_client(f"{site}/mcp", http_client=web), mode=era.value) as client,
    ):
        yield client


def link_of(result: CallToolResult) -> tuple[str, str]:
    """Return the link and the handle in a result."""
    text = text_of(result)
    (link,) = re.findall(r"http://\S+/ask/\S+", text)
    return link, handle_in(result)


async def test_user_of_the_client_answers_in_a_logged_in_browser(site: str, era: Era) -> None:
    with anyio.fail_after(WAIT):
        async with logged_in(site, Login("ada"), era) as client, Browser("ada") as browser:
            link, handle = link_of(await client.call_tool("book", {"film": "Metropolis"}))
            assert (await browser.fill(link, "2")).status_code == 303
            result = await client.call_tool("continue_call", {"handle": handle})
    assert text_of(result) == "2 seats for Metropolis"


async def test_page_is_closed_for_another_user_of_the_provider(site: str) -> None:
    with anyio.fail_after(WAIT):
        async with logged_in(site, Login("ada"), Era.RETRY) as client, Browser("eve") as browser:
            link, _ = link_of(await client.call_tool("book", {"film": "Metropolis"}))
            foreign = await browser.open(link)
            unknown = await browser.open(f"{site}/ask/{'x' * 40}")
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.text == unknown.text
    assert "Metropolis" not in foreign.text


async def test_login_of_another_browser_is_not_taken_over(site: str) -> None:
    """The state in the address belongs to the browser that began: a sent address logs nobody in as its sender."""
    async with logged_in(site, Login("ada"), Era.RETRY) as client, Browser("eve") as eve, Browser("ada") as ada:
        forged = await eve.get(f"{site}/login?code=stolen&state=forged")
        assert (forged.status_code, "session" in eve.cookies) == (400, False)
        link, _ = link_of(await client.call_tool("book", {"film": "Metropolis"}))
        begun = await eve.get(link)
        answer = await eve.get(begun.headers["Location"])
        assert answer.status_code in (302, 303)
        await ada.get(link)
        sent = f"{site}/login?code=any&state={parse_qs(urlsplit(begun.headers['Location']).query)['state'][0]}"
        assert (await ada.get(sent)).status_code == 400


@pytest.mark.parametrize(("meant", "is_valid"), [("/mcp", True), ("/other", False)])
async def test_token_is_valid_for_its_server_alone(site: str, meant: str, is_valid: bool) -> None:
    login = Login("ada")
    async with logged_in(site, login, Era.RETRY) as client:
        await client.list_tools()
        tokens = await login.get_tokens()
    assert tokens is not None
    (issuer,) = login.issuers
    verified = await oidc_pages.AccessTokens(issuer, site + meant).verify_token(tokens.access_token)
    assert (verified is not None) is is_valid
    assert await oidc_pages.AccessTokens("http://127.0.0.1:1", site + meant).verify_token("e30.e30.e30") is None
