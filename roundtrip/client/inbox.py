"""A client that uses a server's approval-inbox API for a person who is logged in."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

import httpx2

from roundtrip.client.targets import UNCOMPRESSED, size_limit

INBOX_PATH: Final = "/approvals/api"
_MAX_BYTES: Final = 2**20


class InboxClient:
    """Client for an approval inbox.

    Args:
        base: The base URL of the server's pages.
        login: The headers that log the person in.
        seconds: The time limit for a request.
    """

    def __init__(self, base: str, login: Mapping[str, str], *, seconds: float) -> None:
        self._address = f"{base.rstrip('/')}{INBOX_PATH}"
        self._login = login
        self._seconds = seconds

    async def ask(
        self, path: str = "", decision: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, Any] | None]:
        """Send a GET request, or POST a decision. Return the status, and the response's JSON object or None.

        Raises:
            httpx2.HTTPError: The request failed.
            TooLarge: The response is too large or compressed.
        """
        # Do not follow redirects, because they could send the login to another server.
        async with httpx2.AsyncClient(
            headers={**UNCOMPRESSED, **self._login},
            timeout=self._seconds,
            follow_redirects=False,
            event_hooks={"response": [size_limit(_MAX_BYTES)]},
        ) as http:
            method = "GET" if decision is None else "POST"
            answer = await http.request(method, f"{self._address}{path}", json=decision)
        body: object = None
        with suppress(ValueError, RecursionError):
            body = json.loads(answer.content)
        return answer.status_code, cast("dict[str, Any]", body) if isinstance(body, dict) else None
