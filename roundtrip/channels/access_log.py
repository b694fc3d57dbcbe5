"""Access log filter that hides tickets. A page without a login is protected only by its secret address."""

import logging
import re
from typing import Final

from roundtrip.questions.wire import TICKET

_PAGE_TICKET: Final = re.compile(r"(?<=/ask/)[^ ?/]+")


def hide_tickets() -> None:
    """Replace tickets in uvicorn's access log, including those in question page addresses."""
    logging.getLogger("uvicorn.access").addFilter(_without_tickets)


def _without_tickets(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(
            TICKET.sub("<ticket>", _PAGE_TICKET.sub("<ticket>", one)) if isinstance(one, str) else one
            for one in record.args
        )
    return True
