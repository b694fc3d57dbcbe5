"""In-memory calls behind question pages: each ticket has a scripted call that records its answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from roundtrip.pages.calls import AskingPage, ClosedPage, EndedPage, PageState, WorkingPage
from roundtrip.pages.forms import OpenQuestions

__all__ = ["KEY", "TICKET", "MemoryCalls", "ScriptedCall", "confirmation", "form", "link"]

TICKET: Final = "0123456789abcdef"
KEY: Final = b"a key of the pages in these tests"


def form(message: str, properties: Mapping[str, Any], *, required: Sequence[str] = ()) -> dict[str, Any]:
    """Return the request for a question with a form."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties), "required": list(required)}
    return _request({"mode": "form", "message": message, "requestedSchema": schema})


def confirmation(message: str) -> dict[str, Any]:
    """Return the request for a question without fields."""
    return form(message, {})


def link(message: str, url: str) -> dict[str, Any]:
    """Return the request for a question in URL mode."""
    return _request({"mode": "url", "message": message, "url": url, "elicitationId": "e1"})


def _request(params: dict[str, Any]) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": params}


@dataclass(slots=True)
class ScriptedCall:
    """One call: the rounds that it asks, and everything that happens to it."""

    rounds: list[OpenQuestions]
    subject: str | None = None
    result: str | None = None
    is_error: bool = False
    is_expired: bool = False
    is_working: bool = False
    """True while the page must wait for the next round or the end."""
    seconds: int = 1
    """Seconds after which the waiting page reloads itself."""
    answers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def state(self) -> PageState:
        place = len(self.answers)
        if self.is_working:
            return WorkingPage(self.seconds)
        if place < len(self.rounds):
            return AskingPage(f"round {place}", self.rounds[place])
        return EndedPage(self.result, self.is_error)


class MemoryCalls:
    """One server's calls, by ticket."""

    def __init__(self, calls: Mapping[str, ScriptedCall]) -> None:
        self.calls = dict(calls)

    def _find(self, ticket: str, subject: str | None) -> ScriptedCall | None:
        call = self.calls.get(ticket)
        return None if call is None or call.is_expired or call.subject != subject else call

    async def open(self, ticket: str, subject: str | None) -> PageState:
        call = self._find(ticket, subject)
        return ClosedPage() if call is None else call.state()

    async def answer(
        self, ticket: str, subject: str | None, round_id: str, answers: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        call = self._find(ticket, subject)
        state = None if call is None else call.state()
        if call is None or not isinstance(state, AskingPage) or state.round_id != round_id:
            return False
        call.answers.append({key: dict(answer) for key, answer in answers.items()})
        return True
