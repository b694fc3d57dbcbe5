"""Log readers of question pages in with OpenID Connect, at the provider that also logs in the clients' users.

Register this program at the provider as a web application with the redirect address `BASE_URL/login`. Then:

    pip install 'mcp-roundtrip[pages]' authlib httpx 'pyjwt[crypto]'
    OIDC_ISSUER=https://login.example OIDC_CLIENT_ID=pages OIDC_CLIENT_SECRET=… BASE_URL=https://cinema.example \
        python examples/oidc_pages.py --port 8000

An access token identifies a client's user, and a login identifies a browser's. They are the same user if issuer and
subject agree.
"""

import argparse
import os
import secrets
from typing import Any

import anyio.to_thread
import httpx
import jwt
import uvicorn
from authlib.integrations.starlette_client import OAuth, OAuthError
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from starlette.applications import Starlette
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from roundtrip import Context, Pages, Server


class AccessTokens:
    """Verifier for the clients' access tokens: the issuer signed them, and they are meant for this server."""

    def __init__(self, issuer: str, resource: str) -> None:
        self._issuer, self._resource = issuer, resource
        self._keys: jwt.PyJWKClient | None = None

    def _claims(self, token: str) -> dict[str, Any]:
        if self._keys is None:
            metadata = httpx.get(f"{self._issuer}/.well-known/openid-configuration").raise_for_status().json()
            self._keys = jwt.PyJWKClient(metadata["jwks_uri"])
        return jwt.decode(
            token,
            self._keys.get_signing_key_from_jwt(token),
            algorithms=["RS256", "ES256"],
            issuer=self._issuer,
            audience=self._resource,
            options={"require": ["exp", "iss", "aud", "sub", "client_id"]},
        )

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            claims = await anyio.to_thread.run_sync(self._claims, token)
        except (jwt.PyJWTError, httpx.HTTPError):
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            resource=self._resource,
            subject=claims["sub"],
            claims=claims,
        )


class BrowserLogin:
    """Browser login: the authorization code flow, with PKCE and a nonce."""

    def __init__(self, issuer: str, client_id: str, client_secret: str, base_url: str) -> None:
        self._back = f"{base_url}/login"
        registry: Any = OAuth()  # The library has no types.
        self._provider = registry.register(
            "provider",
            client_id=client_id,
            client_secret=client_secret,
            server_metadata_url=f"{issuer}/.well-known/openid-configuration",
            client_kwargs={"scope": "openid", "code_challenge_method": "S256"},
        )

    async def user(self, request: Request) -> AccessToken | Response:
        """Return the user who is logged in, or send the browser to the provider. `Pages` calls this for each page."""
        if (user := request.session.get("user")) is not None:
            # It identifies the user in the same form as the client's token. It is never sent anywhere.
            return AccessToken(token="", client_id="pages", scopes=[], **user)
        response: Response = await self._provider.authorize_redirect(request, self._back)
        # The page's address begins with BASE_URL, so an attacker cannot make this server redirect elsewhere.
        request.session["page"] = request.state.page_url
        return response

    async def finish(self, request: Request) -> Response:
        """Read the provider's answer, and send the browser back to its page."""
        page = request.session.get("page")
        try:
            token: dict[str, Any] = await self._provider.authorize_access_token(request)
        except OAuthError:
            return PlainTextResponse("The login failed, or took too long. Open your link again.", 400)
        # A new session, so that nothing from before the login remains.
        request.session.clear()
        user = token["userinfo"]
        request.session["user"] = {"subject": user["sub"], "claims": {"iss": user["iss"]}}
        return RedirectResponse(page, 303) if page else PlainTextResponse("You are logged in.")


def cinema(issuer: str, client_id: str, client_secret: str, base_url: str) -> Starlette:
    """Return an application with MCP at /mcp, pages at /ask/…, and the login's return address at /login."""
    resource = f"{base_url}/mcp"
    login = BrowserLogin(issuer, client_id, client_secret, base_url)
    server = Server(
        "cinema",
        # Parsed from text: clients compare the issuer exactly, and `AnyHttpUrl(…)` would append a slash.
        auth=AuthSettings.model_validate(
            {"issuer_url": issuer, "resource_server_url": resource, "validate_token_resource": True}
        ),
        token_verifier=AccessTokens(issuer, resource),
        pages=Pages(base_url=base_url, authenticate=login.user),
    )
    server.custom_route("/login", methods=["GET"])(login.finish)

    @server.tool()
    async def book(film: str, ctx: Context) -> str:
        """Book seats for the user."""
        seats = await ctx.ask("seats", f"How many seats for {film}?", int)
        return f"{seats} seats for {film}"

    app = server.streamable_http_app()
    # If there are several instances, give all of them the same secret.
    secret = os.environ.get("SESSION_SECRET") or secrets.token_hex(32)
    app.add_middleware(SessionMiddleware, secret_key=secret, https_only=base_url.startswith("https:"))
    return app


def main() -> None:
    """Serve on 127.0.0.1 until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=8000)
    names = ("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET", "BASE_URL")
    uvicorn.run(
        cinema(*(os.environ[name] for name in names)),
        host="127.0.0.1",
        port=parser.parse_args().port,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
