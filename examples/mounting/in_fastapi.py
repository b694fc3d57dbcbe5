"""Serve the library's tools in a FastAPI application, under /tools."""

from fastapi import FastAPI, Request
from mcp.server.auth.routes import create_protected_resource_routes

from examples.mounting.library import ENDPOINT, LOGIN, lifespan, server

app = FastAPI(lifespan=lifespan)


@app.get("/loans")
async def loans(request: Request) -> str:
    return ", ".join(request.state.catalog.loans)


# Clients look for it at the root: /.well-known/oauth-protected-resource/tools/mcp.
app.router.routes.extend(create_protected_resource_routes(ENDPOINT, [LOGIN]))
app.mount("/tools", server.streamable_http_app())
