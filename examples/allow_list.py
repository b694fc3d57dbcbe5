"""Show each account the tools in its plan. A request's bearer token identifies the account.

Run `python -m examples.allow_list --port 8000` to serve it over HTTP. Run `python -m examples.allow_list --user ada` to
list the tools as that user. Try `ada` (a pro account) and `bob` (a free one).
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from examples.over_http import client_with_token, serve_or_look
from roundtrip import Depends, Server, get_access_token

# These two replace your authorization server and your database.
ACCESS_TOKENS = {"token-of-ada": "ada", "token-of-bob": "bob"}
PLANS = {"ada": "pro", "bob": "free"}


@dataclass(frozen=True)
class Account:
    user: str
    plan: str


class Tokens:
    """Access-token verifier. The SDK rejects requests with an unknown token."""

    async def verify_token(self, token: str) -> AccessToken | None:
        user = ACCESS_TOKENS.get(token)
        return None if user is None else AccessToken(token=token, client_id="any", scopes=[], subject=user)


async def current_account(token: AccessToken | None = Depends(get_access_token)) -> Account:
    """Return the request's account. It runs once per request, although a gate and a parameter use it."""
    if token is None or token.subject is None:
        raise PermissionError("the request has no user")
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
    """Return today's weather."""
    return f"{city}: rain"


# `enabled=` is the visibility gate. It decides for each request: free accounts neither see this tool nor can call it.
@server.tool(enabled=Depends(is_pro, current_account))
async def ten_days(city: str, account: Account = Depends(current_account)) -> str:
    """Return the weather for the next ten days. Only pro accounts see this tool."""
    return f"{city}: rain, ten times, {account.user}"


async def look_as(user: str, url: str) -> None:
    async with client_with_token(url, f"token-of-{user}") as client:
        print(f"{user} sees", [tool.name for tool in (await client.list_tools()).tools])
        result: Any = await client.call_tool("ten_days", {"city": "Bergen"})
        print("ten_days:", result.content[0].text)


if __name__ == "__main__":
    asyncio.run(serve_or_look(server, __doc__, PLANS, look_as))
