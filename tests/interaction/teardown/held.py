"""Dependencies that log their begin and the error or success that ends them, for the tests of teardown."""

import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from roundtrip import Depends, Elicit, Server
from roundtrip.testing import Answers, Era, Steps, User
from tests.kit.hosts import WAIT

LOG: list[str] = []


@contextmanager
def logged(name: str) -> Generator[str]:
    """Log the begin, and the success or error at the end."""
    LOG.append(f"open {name}")
    try:
        yield name
    except BaseException as error:
        LOG.append(f"{name}: {type(error).__name__}")
        raise
    else:
        LOG.append(f"close {name}")


def later(fn: Callable[[], Generator[Any]]) -> Callable[[], AsyncGenerator[Any]]:
    """Return an async generator function that enters and exits as a plain one does."""

    async def generate() -> AsyncGenerator[Any]:
        with contextmanager(fn)() as value:
            yield value

    generate.__name__ = f"{fn.__name__}_later"
    return generate


async def connection() -> AsyncGenerator[str]:
    with logged("connection"):
        yield "connection"


def session(connection: str = Depends(connection)) -> Generator[str]:
    with logged("session"):
        yield f"session on {connection}"


OPENED = ["open connection", "open session"]
CLOSED = ["close session", "close connection"]


def ended_by(error: str) -> list[str]:
    return [*OPENED, f"session: {error}", f"connection: {error}"]


async def sure() -> Elicit[bool]:
    return Elicit("Sure?", bool)


def server_of(tool: Callable[..., Any], *, name: str = "order", trace: Steps | None = None, **options: Any) -> Server:
    """Make a server with one tool."""
    server = Server("shop", trace=trace)
    server.tool(name=name, **options)(tool)
    return server


async def play(server: Server, era: Era, answers: Answers | None = None) -> str:
    """Make one call, and return the text of its result or error."""
    with anyio.fail_after(WAIT):
        call = await User(server, answers, era=era, allow_error=True).call("order")
    return call.failure or call.text


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log of dependencies that failed during their exit."""
    records = [record for record in caplog.records if record.name == "roundtrip" and record.levelno == logging.ERROR]
    return [f"{record.getMessage()}: {record.exc_info[1]!r}" for record in records if record.exc_info]
