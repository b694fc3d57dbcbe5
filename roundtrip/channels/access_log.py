"""Keep tickets out of the access log: without a login, the address of a page is its only secret."""

import logging
import re
from typing import Final

from roundtrip.questions.wire import TICKET

_PAGE_TICKET: Final = re.compile(r"(?<=/ask/)[^ ?/]+")


def hide_tickets() -> None:
    """Remove tickets, and the addresses of question pages, from the lines that uvicorn logs for each request."""
    logging.getLogger("uvicorn.access").addFilter(_without_tickets)


def _without_tickets(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(
            TICKET.sub("<ticket>", _PAGE_TICKET.sub("<ticket>", one)) if isinstance(one, str) else one
            for one in record.args
        )
    return True
