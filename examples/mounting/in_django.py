"""Serve the library's tools beside a Django project, under /tools. This is the project's `asgi.py`.

Django has no lifespan, and cannot serve another ASGI application. So a Starlette application is in front of it.
"""

from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.urls import path
from mcp.server.auth.routes import create_protected_resource_routes
from starlette.applications import Starlette
from starlette.routing import Mount

from examples.mounting.library import ENDPOINT, LOGIN, lifespan, server


async def loans(request: ASGIRequest) -> HttpResponse:
    scope: Any = request.scope  # pyright: ignore[reportUnknownMemberType]
    return HttpResponse(", ".join(scope["state"]["catalog"].loans).encode())


urlpatterns = [path("loans", loans)]

# A real project has a settings module, and names it in DJANGO_SETTINGS_MODULE.
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"])  # pyright: ignore[reportUnknownMemberType]
django = get_asgi_application()

app = Starlette(
    routes=[
        # Clients look for it at the root: /.well-known/oauth-protected-resource/tools/mcp.
        *create_protected_resource_routes(ENDPOINT, [LOGIN]),
        Mount("/tools", server.streamable_http_app()),
        Mount("/", django),
    ],
    lifespan=lifespan,
)
