"""A web server for a page, in a process that also does other work."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

_CLOSING_SECONDS: Final = 1


class PageHost(uvicorn.Server):
    """Page server that does not handle signals, because the supervisor does.

    Args:
        app: The page's ASGI application.
    """

    def __init__(self, app: Any) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            # The author's module may have configured logging in this process. Page requests must not appear in that
            # log.
            log_level="warning",
            access_log=False,
            server_header=False,
            # Ignore proxy headers. The user is identified by the peer address, which a proxy header could forge.
            proxy_headers=False,
            timeout_graceful_shutdown=_CLOSING_SECONDS,
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave all signals to the supervisor."""
        yield
