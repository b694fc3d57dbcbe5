"""Access log filter for tickets. Without a login, a page's address is its only secret."""

import logging
import re
from typing import Final

from roundtrip.questions.wire import TICKET

_PAGE_TICKET: Final = re.compile(r"(?<=/ask/)[^ ?/]+")


def hide_tickets() -> None:
    """Remove tickets and question page addresses from uvicorn's access log."""
    logging.getLogger("uvicorn.access").addFilter(_without_tickets)


def _without_tickets(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(
            TICKET.sub("<ticket>", _PAGE_TICKET.sub("<ticket>", one)) if isinstance(one, str) else one
            for one in record.args
        )
    return True
