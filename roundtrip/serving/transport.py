"""The SDK's application with the settings of the service: allowed names, and one body or a stream for each response."""

from functools import partial
from typing import Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp

from roundtrip.http.connections import HttpOptions
from roundtrip.http.fast_lane import FastLane
from roundtrip.serving.names import Names
from roundtrip.serving.responses import ResponseChooser, choose_per_request
from roundtrip.serving.settings import ServeSettings

_CHECKED_BY_NAMES: Final = TransportSecuritySettings(enable_dns_rebinding_protection=False)


def http_options(settings: ServeSettings) -> HttpOptions:
    """Return the options with which the SDK makes its application."""
    return {
        "streamable_http_path": settings.path,
        "stateless_http": not settings.keeps_sessions,
        "max_request_body_size": settings.max_body,
        "transport_security": _CHECKED_BY_NAMES,
        "host": settings.host,
    }


def chosen_responses(app: ASGIApp, manager: StreamableHTTPSessionManager, settings: ServeSettings) -> ASGIApp:
    """Return an application of the SDK that checks names, and chooses the kind of each response."""
    choose_per_request(manager, settings.json_response)
    # Wrap the endpoint itself: every spelling of the path leads to it.
    endpoint: ASGIApp = manager.asgi_app
    if settings.json_response == "auto":
        choose = partial(ResponseChooser, max_body=settings.max_body)
        endpoint = endpoint.before(choose) if isinstance(endpoint, FastLane) else choose(endpoint)
    manager.asgi_app = Names(  # type: ignore[assignment]
        endpoint, settings.allowed_hosts, settings.allowed_origins, loopback=settings.is_loopback
    )
    return app
