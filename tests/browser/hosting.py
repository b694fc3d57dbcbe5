"""Serve applications in a thread, while playwright's synchronous interface uses this one."""

from collections.abc import Generator
from contextlib import contextmanager

from anyio.from_thread import start_blocking_portal
from starlette.types import ASGIApp

from tests.kit.hosts import hosted

__all__ = ["hosted_in_a_thread"]


@contextmanager
def hosted_in_a_thread(app: ASGIApp) -> Generator[str]:
    """Serve an application without a lifespan, and yield its address without a path."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(hosted(app, lifespan="off")) as url:
        yield url
