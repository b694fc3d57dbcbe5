"""Ask the API of a server's inbox of approvals, as a person who is logged in."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

import httpx2

from roundtrip.client.targets import UNCOMPRESSED, size_limit

INBOX_PATH: Final = "/approvals/api"
_MAX_BYTES: Final = 2**20


class InboxClient:
    """Client of an inbox.

    Args:
        base: The address of the server's pages.
        login: The headers by which the person logs in.
        seconds: The time limit of a request.
    """

    def __init__(self, base: str, login: Mapping[str, str], *, seconds: float) -> None:
        self._address = f"{base.rstrip('/')}{INBOX_PATH}"
        self._login = login
        self._seconds = seconds

    async def ask(
        self, path: str = "", decision: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, Any] | None]:
        """Return the status and the JSON object of an answer, None without one; a decision is posted.

        Raises:
            httpx2.HTTPError: Nothing answers.
            TooLarge: The answer is too long, or compressed.
        """
        # A redirect could send the login elsewhere.
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
