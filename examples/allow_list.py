"""Which tools an account sees depends on its plan, and its plan on the bearer token that it shows.

`python examples/allow_list.py --port 8000` serves it over HTTP. `python examples/allow_list.py --user ada` serves it
too, looks at it as that user, and prints what they may do; try `ada` (a pro account) and `bob` (a free one).
"""

import argparse
import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import uvicorn
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from roundtrip import Depends, Server, get_access_token

# Stand-ins for what you have already: an authorization server, and a database.
ACCESS_TOKENS = {"token-of-ada": "ada", "token-of-bob": "bob"}
PLANS = {"ada": "pro", "bob": "free"}


@dataclass(frozen=True)
class Account:
    user: str
    plan: str


class Tokens:
    """Tells whose access token a request shows. The SDK refuses requests whose token it does not know."""

    async def verify_token(self, token: str) -> AccessToken | None:
        user = ACCESS_TOKENS.get(token)
        return None if user is None else AccessToken(token=token, client_id="any", scopes=[], subject=user)


async def current_account(token: AccessToken | None = Depends(get_access_token)) -> Account:
    """Runs once for each request, however many tools it gates and parameters it fills."""
    if token is None or token.subject is None:
        raise PermissionError("nobody is logged in")
    return Account(token.subject, PLANS[token.subject])


async def is_pro(account: Account) -> bool:
    return account.plan == "pro"


server = Server(
    "forecasts",
    auth=AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None),
    token_verifier=Tokens(),
)


@server.tool
async def today(city: str) -> str:
    """Tell the weather of today."""
    return f"{city}: rain"


@server.tool(enabled=Depends(is_pro, current_account))
async def ten_days(city: str, account: Account = Depends(current_account)) -> str:
    """Tell the weather of the next ten days. Only pro accounts see this tool."""
    return f"{city}: rain, ten times, {account.user}"


@asynccontextmanager
async def serving(port: int = 0) -> AsyncGenerator[str]:
    """The server on a port of this machine, and where it is."""
    listening = socket.create_server(("127.0.0.1", port))
    web = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning"))
    task = asyncio.create_task(web.serve([listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        web.should_exit = True
        await task


async def look_as(user: str, url: str) -> None:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer token-of-{user}"}) as web,
        Client(streamable_http_client(url, http_client=web)) as client,
    ):
        print(f"{user} sees", [tool.name for tool in (await client.list_tools()).tools])
        result: Any = await client.call_tool("ten_days", {"city": "Bergen"})
        print("ten_days:", result.content[0].text)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--user", choices=sorted(PLANS), help="look at it as this user, and end")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    async with serving(arguments.port) as url:
        if arguments.user is not None:
            await look_as(arguments.user, url)
            return
        print("serving at", url)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
