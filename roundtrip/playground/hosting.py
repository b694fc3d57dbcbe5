"""Serve a page beside other work of its process."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

_CLOSING_SECONDS: Final = 1


class PageHost(uvicorn.Server):
    """Server of the page, which leaves signals to the supervisor.

    Args:
        app: The page.
    """

    def __init__(self, app: Any) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            # A server that is imported here may have set up the log; its own requests are none of the page's.
            log_level="warning",
            access_log=False,
            server_header=False,
            # The address of the peer tells its user, and a header could claim another.
            proxy_headers=False,
            timeout_graceful_shutdown=_CLOSING_SECONDS,
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle no signals."""
        yield
