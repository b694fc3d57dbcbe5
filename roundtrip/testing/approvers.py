"""Scripted approvers, who decide approvals through the inbox API."""

import logging
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import anyio
import httpx2

from roundtrip.adapters.finding import attached
from roundtrip.testing.question_pages import browser_on

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True

_LOOK_SECONDS: Final = 0.02
_REASON: Final = "rejected by the test"

_IS_LOOKING: Final[ContextVar[bool]] = ContextVar("is_looking", default=False)
# Without this filter, each poll of the inbox would log a line.
logging.getLogger("httpx2").addFilter(
    lambda record: not _IS_LOOKING.get() or record.levelno > logging.INFO or "/approvals/api" not in record.getMessage()
)

# `Mapping` is invariant in its key, so `Mapping[str, ...]` is not a `Mapping[str | re.Pattern[str], ...]`.
_MatcherT = TypeVar("_MatcherT", str, str | re.Pattern[str])

Verdict: TypeAlias = Literal["approve", "reject"] | tuple[Literal["approve", "reject"], str] | None
"""A decision, with or without a reason. If it is None, the approval stays open."""


class Approver:
    """A scripted person who decides the approvals in their inbox while a `User` makes a call.

    Pass the person as `User(..., approver=...)`.

    Args:
        verdicts: The decisions, in a mapping. A key is a group's name, or a compiled pattern that matches the
            approval's message. Alternatively, a function that takes an approval in the inbox API's format and returns a
            decision. An approval without a decision stays open.
        headers: The person's login, in the form that `Pages(authenticate=...)` reads.

    Example:
        ```python
        fay = Approver({"finance": "approve"}, headers={"authorization": "Bearer token-of-fay"})
        call = await User(server, approver=fay).call("refund", amount=5)
        ```
    """

    def __init__(
        self,
        verdicts: Mapping[_MatcherT, Verdict] | Callable[[Mapping[str, Any]], Verdict],
        *,
        headers: Mapping[str, str],
    ) -> None:
        if not callable(verdicts) and not isinstance(verdicts, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the verdicts must be a function, or a mapping from groups or patterns, got {verdicts!r}")
        self._verdicts = verdicts
        self._headers = dict(headers)
        self.decided: list[dict[str, Any]] = []
        """The approvals that this person has decided, in the inbox API's format."""

    async def watch(
        self, server: Callable[[], object], tell: Callable[[dict[str, Any]], object] = lambda decided: None
    ) -> None:
        """Decide incoming approvals until cancelled, and pass each decision to `tell`.

        Raises:
            AssertionError: The person cannot log in, or a verdict is invalid.
        """
        _IS_LOOKING.set(True)
        while True:
            instance = server()
            async with self._client(instance) as http:
                # Poll each instance at least once. A network may move the call to instances with other keys, so
                # `server()` may return a new instance each time.
                while True:
                    await self._decide_all(http, tell)
                    await anyio.sleep(_LOOK_SECONDS)
                    if server() != instance:
                        break

    def _client(self, server: object) -> httpx2.AsyncClient:
        if (ours := attached(server)) is not None:
            return browser_on(ours, base_url="http://inbox", headers=self._headers)
        if isinstance(server, str):
            return httpx2.AsyncClient(base_url=server.removesuffix("/mcp"), headers=self._headers)
        raise AssertionError("approver= needs a server in this process, or a URL")

    async def _decide_all(self, http: httpx2.AsyncClient, tell: Callable[[dict[str, Any]], object]) -> None:
        after: str | None = None
        while True:
            page = await http.get("/approvals/api", params={} if after is None else {"after": after})
            if page.status_code != 200:
                raise AssertionError(
                    f"the approver cannot open the inbox: {page.status_code} {page.text[:200]}; pass Approver the "
                    "headers= of a login that Pages(authenticate=...) accepts, and make the server with approvals="
                )
            body = page.json()
            for approval in body["approvals"]:
                if (decision := await self._decide(http, approval)) is not None:
                    self.decided.append(decision)
                    tell(decision)
            after = body["next"]
            if after is None:
                return

    async def _decide(self, http: httpx2.AsyncClient, approval: Mapping[str, Any]) -> dict[str, Any] | None:
        verdict = self._verdict_on(approval)
        if verdict is None:
            return None
        decision, reason = (verdict, _REASON) if isinstance(verdict, str) else verdict
        if decision not in ("approve", "reject"):
            raise AssertionError(f"a verdict must be 'approve' or 'reject', or a pair with a reason, got {verdict!r}")
        if verdict == "approve":
            reason = ""
        response = await http.post(f"/approvals/api/{approval['id']}", json={"decision": decision, "reason": reason})
        # The request fails if another person has already decided the approval.
        return response.json() if response.status_code == 200 else None

    def _verdict_on(self, approval: Mapping[str, Any]) -> Verdict:
        if callable(self._verdicts):
            return self._verdicts(approval)
        for matcher, verdict in cast("Mapping[str | re.Pattern[str], Verdict]", self._verdicts).items():
            if isinstance(matcher, str):
                if matcher == approval["by"]:
                    return verdict
            elif matcher.search(approval["message"]):
                return verdict
        return None
