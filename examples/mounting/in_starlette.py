"""Serve the library's tools in a Starlette application, under /tools."""

from mcp.server.auth.routes import create_protected_resource_routes
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from examples.mounting.library import ENDPOINT, LOGIN, State, lifespan, server


async def loans(request: Request[State]) -> PlainTextResponse:
    return PlainTextResponse(", ".join(request.state["catalog"].loans))


app = Starlette(
    routes=[
        Route("/loans", loans),
        # Clients look for it at the root: /.well-known/oauth-protected-resource/tools/mcp.
        *create_protected_resource_routes(ENDPOINT, [LOGIN]),
        Mount("/tools", server.streamable_http_app()),
    ],
    lifespan=lifespan,
)
