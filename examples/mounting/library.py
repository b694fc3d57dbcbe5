"""A library with an MCP server. Each application in this folder serves it at /tools/mcp, beside the application's page.

Run one of them with `uvicorn examples.mounting.in_starlette:app`, `in_fastapi:app` or `in_django:app`.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypedDict

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from roundtrip import Elicit, Resolve, Server, get_access_token, get_request

ENDPOINT = AnyHttpUrl(os.environ.get("LIBRARY_ENDPOINT", "http://127.0.0.1:8000/tools/mcp"))
LOGIN = AnyHttpUrl("https://login.example")

# This replaces your authorization server.
ACCESS_TOKENS = {"token-of-ada": "ada", "token-of-eve": "eve"}


class Tokens:
    """Access-token verifier. The SDK rejects requests with unknown tokens or tokens for other servers."""

    async def verify_token(self, token: str) -> AccessToken | None:
        user = ACCESS_TOKENS.get(token)
        if user is None:
            return None
        return AccessToken(token=token, client_id="any", scopes=[], subject=user, resource=str(ENDPOINT))


@dataclass
class Catalog:
    """Catalog that replaces your database."""

    loans: list[str] = field(default_factory=list[str])
    is_open: bool = True


class State(TypedDict):
    catalog: Catalog


async def which_copy(title: str) -> Elicit[Literal["paper", "audio"]]:
    return Elicit(f"Which copy of {title}?", Literal["paper", "audio"])


async def borrow(title: str, copy: Annotated[str, Resolve(which_copy)]) -> str:
    """Borrow a book."""
    token = get_access_token()
    # The application's lifespan stored it there, for the application's pages and for tools.
    catalog: Catalog = get_request().state.catalog
    catalog.loans.append(title)
    return f"{token.subject if token else 'nobody'} has {title} ({copy})"


server = Server(
    "library",
    auth=AuthSettings(issuer_url=LOGIN, resource_server_url=ENDPOINT, validate_token_resource=True),
    token_verifier=Tokens(),
)
server.add_tool(borrow)


@asynccontextmanager
async def lifespan(app: object) -> AsyncGenerator[State]:
    """Wrap the whole application. Nothing starts a mounted application's lifespan, so start the server here."""
    catalog = Catalog()
    async with server.session_manager.run():
        yield {"catalog": catalog}
    catalog.is_open = False
