"""The server's approval inbox: it lists pending approvals, and sends decisions with an approver's login."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote

import httpx2

from roundtrip.client.inbox import InboxClient
from roundtrip.client.targets import TooLarge
from roundtrip.text import printable
from roundtrip.trace.page.data import Data

_REQUEST_SECONDS: Final = 10.0
_SHOWN_FIELDS: Final = ("id", "message", "by", "tool", "caller", "until")
_NO_LOGIN: Final = (
    "To decide approvals here, start with --approver 'NAME: VALUE'. It is the HTTP header with which a member of the "
    "group logs in to the server's pages. The caller cannot decide approvals."
)
_REJECTED: Final = "The server's pages rejected the login from --approver."


class PlayedInbox:
    """The server's pending approvals.

    Args:
        base: The address of the server's pages.
        login: The approver's login headers; None without an approver.
    """

    def __init__(self, base: str, login: Mapping[str, str] | None) -> None:
        self.exists = True
        """False once the server has answered that it has no inbox."""
        self._has_login = login is not None
        self._inbox = InboxClient(base, login or {}, seconds=_REQUEST_SECONDS)
        self._pending: list[Data] = []
        self._note = ""

    @property
    def data(self) -> Data:
        """Return page data with the pending approvals, or with a note if they cannot be shown."""
        return {"pending": self._pending, "note": self._note}

    async def refresh(self) -> bool:
        """Fetch the pending approvals. Return True if they have changed."""
        before = self._pending, self._note
        status, body = await self._send()
        if not status:
            # Keep the approvals that were fetched last, because a reload may be replacing the server process.
            return False
        self.exists = status != HTTPStatus.NOT_FOUND
        listed: Any = body.get("approvals")
        found = cast("list[Any]", listed) if status == HTTPStatus.OK and isinstance(listed, list) else []
        self._pending = [_approval_data(cast("Mapping[str, Any]", one)) for one in found if isinstance(one, dict)]
        self._note = (_REJECTED if self._has_login else _NO_LOGIN) if status == HTTPStatus.UNAUTHORIZED else ""
        return (self._pending, self._note) != before

    async def decide(self, approval: str, decision: str, reason: str) -> None:
        """Decide an approval.

        Raises:
            ValueError: The server rejected the decision.
        """
        sent = {"decision": decision, "reason": reason}
        status, body = await self._send(f"/{quote(approval, safe='')}", sent)
        if status != HTTPStatus.OK:
            raise ValueError(printable(str(body.get("error") or f"the server answered with status {status}")))

    async def _send(self, path: str = "", decision: Mapping[str, str] | None = None) -> tuple[int, Mapping[str, Any]]:
        """Return the status and the JSON body of the server's response. The status is 0 if there was no response."""
        try:
            status, body = await self._inbox.ask(path, decision)
        except (httpx2.HTTPError, TooLarge):
            return 0, {}
        return status, body or {}


def _approval_data(approval: Mapping[str, Any]) -> Data:
    return {name: printable(str(approval.get(name, "")), keep_newlines=True) for name in _SHOWN_FIELDS}
