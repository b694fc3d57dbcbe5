"""Keep the addresses of question pages out of the access log: without a login, an address is the page's only secret."""

import logging
import re
from typing import Final

__all__ = ["hide_page_addresses"]

_TICKET: Final = re.compile(r"(?<=/ask/)[^ ?/]+")


def hide_page_addresses() -> None:
    """Remove the tickets of pages from the lines that uvicorn logs for each request."""
    logging.getLogger("uvicorn.access").addFilter(_without_page_tickets)


def _without_page_tickets(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(_TICKET.sub("<ticket>", one) if isinstance(one, str) else one for one in record.args)
    return True
