"""The request being served, for code that is handed nothing: plain functions that serve as dependencies too."""

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, cast

from mcp.server.auth.middleware import auth_context
from mcp.server.auth.provider import AccessToken
from starlette.requests import Request

if TYPE_CHECKING:
    from roundtrip.server.context import Context

__all__ = ["get_access_token", "get_context", "get_http_headers", "get_request", "offer", "take_back"]

Make = Callable[[], Any]
"""Makes the context, or gives the one that has been made."""

_OFFERED: ContextVar[Make | None] = ContextVar("roundtrip_context", default=None)


def offer(make: Make) -> Token[Make | None]:
    """Offer a context to the code that runs from here on, until `take_back`."""
    return _OFFERED.set(make)


def take_back(offered: Token[Make | None]) -> None:
    """Offer again what was offered before."""
    _OFFERED.reset(offered)


def get_context() -> "Context[Any, Any]":
    """The context of the request being served.

    Raises:
        RuntimeError: No request is being served here.
    """
    return _context_for("get_context")


def get_request() -> Request[Any]:
    """The HTTP request that carries the one being served.

    Raises:
        RuntimeError: No request is being served here, or it did not come over HTTP.
    """
    request: object = _context_for("get_request").request_context.request
    if not isinstance(request, Request):
        raise RuntimeError("get_request() needs a request that came over HTTP, and this one did not")
    return cast("Request[Any]", request)


def get_access_token() -> AccessToken | None:
    """The verified access token of the caller; None where the server has no authentication.

    Raises:
        RuntimeError: No request is being served here.
    """
    _context_for("get_access_token")
    return auth_context.get_access_token()


def get_http_headers() -> dict[str, str]:
    """The HTTP headers of the request by their lower-case names; none where it did not come over HTTP.

    They are what the client says, and prove nothing about who it is.

    Raises:
        RuntimeError: No request is being served here.
    """
    return {name.lower(): value for name, value in (_context_for("get_http_headers").headers or {}).items()}


def _context_for(caller: str) -> "Context[Any, Any]":
    make = _OFFERED.get()
    if make is None:
        raise RuntimeError(
            f"{caller}() was called outside of a request: there is none while a server is set up, nor in a thread or "
            "task that was not started from the request's own code"
        )
    return make()
