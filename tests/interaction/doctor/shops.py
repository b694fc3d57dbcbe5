"""The shops that a doctor visits, one setting apart from each other, and everything else that may be at an address.

One process serves all of them, each below a path of its own: what a doctor looks at is instances, and each shop is one.
"""

import itertools
import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final, cast

import anyio
import anyio.lowlevel
from mcp.server.context import ServerRequestContext
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from roundtrip import Elicit, Pages, Resolve, Server
from roundtrip.ledger import MemoryLedger, RedisLedger, SqliteLedger
from roundtrip.ledger.contract import Ledger

OLD, OTHER = "o" * 32, "x" * 32
FOLDER: Final = "DOCTOR_TEST_FOLDER"
"""The variable that names a folder for ledgers."""
REDIS: Final = "DOCTOR_TEST_REDIS"
"""The variable that names a Redis, if there is one."""
ENDLESS: Final = "X-Endless"
"""A header that has the readiness route say no, and never stop."""
PASSWORD: Final = "Bearer sesame"


_SKEW: ContextVar[float] = ContextVar("skew", default=0.0)


def by_port(ctx: ServerRequestContext[Any, Any]) -> str | None:
    """Return a principal that no two processes agree on."""
    request: object = ctx.request
    return f"port {cast('Request[Any]', request).url.port}" if isinstance(request, Request) else None


async def sure() -> Elicit[bool]:
    return Elicit("Sure?", bool)


def shop(**options: Any) -> Server[Any]:
    given: dict[str, Any] = {"keys": [OLD], "probe": True, "trace": False, **options}
    server = Server[Any]("shop", **given)

    @server.tool()
    async def order(title: str, sure: Annotated[bool, Resolve(sure)]) -> str:
        return title if sure else "nothing"

    return server


def with_pages() -> Server[Any]:
    async def reader(request: Request) -> str:
        return "ann"

    def caller(ctx: ServerRequestContext[Any, Any]) -> str:
        return "ann"

    return shop(principal=caller, pages=Pages(base_url="https://shop.example", authenticate=reader))


def next_build(**options: Any) -> Server[Any]:
    server = shop(**options)

    @server.tool()
    async def refund(title: str) -> str:
        return title

    @server.tool(enabled=False)
    async def launder() -> str:
        return "clean"

    return server


def paying(ledger: Ledger) -> Server[Any]:
    server = shop(ledger=ledger)

    @server.tool(exactly_once=True)
    async def pay(sure: Annotated[bool, Resolve(sure)]) -> str:
        return "paid" if sure else "not paid"

    return server


def _shops() -> Mapping[str, Server[Any]]:
    folder = Path(os.environ[FOLDER])
    shops = {
        "plain": shop(),
        "without-probe": shop(probe=False),
        "other-keys": shop(keys=[OTHER]),
        "other-audience": shop(audience="https://shop.example/\x1b[31m"),
        "next-build": next_build(),
        "with-pages": with_pages(),
        "other-principal": shop(principal=by_port),
        "paying": paying(SqliteLedger(folder / "shared.db")),
        "paying-alone": paying(MemoryLedger()),
        "paying-in-vain": paying(SqliteLedger(folder / "missing" / "ledger.db")),
    }
    if REDIS in os.environ:
        shops["paying-in-redis"] = paying(RedisLedger(os.environ[REDIS]))
    return shops


def balanced(*apps: ASGIApp) -> ASGIApp:
    """Return a balancer that gives each request to the next application."""
    turns = itertools.cycle(apps)

    async def balance(scope: Scope, receive: Receive, send: Send) -> None:
        await next(turns)(scope, receive, send)

    return balance


def locked(app: ASGIApp) -> ASGIApp:
    """Return an application that requires a password."""

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        if dict(scope["headers"]).get(b"authorization") == PASSWORD.encode():
            await app(scope, receive, send)
        else:
            await PlainTextResponse("Who are you?", 401)(scope, receive, send)

    return check


async def page(request: object) -> PlainTextResponse:
    del request
    return PlainTextResponse("<h1>Wel\x1b[31mcome</h1>")


async def _for_ever() -> AsyncGenerator[bytes]:
    for _ in range(1024):
        yield b" " * 2**16
        # Sending to a client that has gone does not wait by itself, and would block the event loop.
        await anyio.lowlevel.checkpoint()
    await anyio.sleep_forever()


async def endless(request: Request) -> StreamingResponse:
    del request
    return StreamingResponse(_for_ever(), media_type="application/json")


def skewed(app: ASGIApp, seconds: float) -> ASGIApp:
    """Serve an application with a clock that is some seconds ahead."""

    async def shift(scope: Scope, receive: Receive, send: Send) -> None:
        shifted = _SKEW.set(seconds)
        try:
            await app(scope, receive, send)
        finally:
            _SKEW.reset(shifted)

    return shift


class Street:
    """Application of all shops; processes expect a server in its place."""

    def __init__(self) -> None:
        true_time = time.time
        time.time = lambda: true_time() + _SKEW.get()

    def streamable_http_app(self, **options: Any) -> Starlette:
        apps = {name: each.streamable_http_app(**options) for name, each in _shops().items()}
        apps["with-sessions"] = shop().streamable_http_app()
        apps["left"], apps["middle"], apps["right"] = (shop().streamable_http_app(**options) for _ in range(3))
        others: dict[str, ASGIApp] = {
            "far-behind": skewed(apps["right"], -600),
            "locked": locked(apps["plain"]),
            "balanced": balanced(apps["left"], apps["middle"], apps["right"]),
        }

        async def ready(request: Request) -> Response:
            if ENDLESS in request.headers:
                return StreamingResponse(_for_ever(), 503)
            return PlainTextResponse("")

        @asynccontextmanager
        async def lifespan(street: Starlette) -> AsyncGenerator[None]:
            del street
            async with AsyncExitStack() as stack:
                for app in apps.values():
                    await stack.enter_async_context(app.router.lifespan_context(app))
                yield

        return Starlette(
            routes=[
                Route("/health/ready", ready),
                Route("/website/mcp", page, methods=["GET", "POST"]),
                Route("/endless/mcp", endless, methods=["GET", "POST"]),
                *(Mount(f"/{name}", app) for name, app in {**apps, **others}.items()),
            ],
            lifespan=lifespan,
        )


def street() -> Any:
    return Street()
