"""A page server that runs in the same process as other work."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

_CLOSING_SECONDS: Final = 1


class PageHost(uvicorn.Server):
    """Page server that leaves signals to the supervisor.

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
            # The author's module may have configured logging in this process, so keep page requests out of that log.
            log_level="warning",
            access_log=False,
            server_header=False,
            # The peer address identifies the user, and a proxy header could forge it.
            proxy_headers=False,
            timeout_graceful_shutdown=_CLOSING_SECONDS,
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle no signals."""
        yield
