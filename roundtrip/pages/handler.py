"""Question page handler: Starlette routes that show a call's state and accept its answers.

GET shows the page and changes nothing. POST redirects to the same page, so that the browser's reload and back buttons
do not send an answer again.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from typing_extensions import Unpack

from roundtrip.pages import calls
from roundtrip.pages.calls import PageCalls, PageState, ShownDecision
from roundtrip.pages.controls import Posted
from roundtrip.pages.forms import TOKEN, form_of_questions, read_form
from roundtrip.pages.responses import PageSite, SiteOptions
from roundtrip.text import printable

Authenticate = Callable[[Request], Awaitable[str | Response | None]]
"""Function that identifies the page's reader. It returns the reader, a login response such as a redirect, or None,
which becomes a 401.

`request.state.page_url` has the page address, so that a login can lead back to it.
"""

_PATH: Final = "/ask"
TICKET_PATTERN: Final = re.compile(r"[A-Za-z0-9._~-]{16,2048}", re.ASCII)
"""A ticket with only these characters is safe in a header and in a path."""

ANSWERED: Final = "Nothing was sent this time: the question was already answered, or it has changed."


class QuestionPages(PageSite):
    """Question pages of one server.

    Args:
        calls: The calls that the pages show.
        authenticate: Returns the page's reader. Without it, the address is enough to open the page.
        **site: Arguments for `PageSite`.

    Raises:
        ValueError: An argument is invalid.
    """

    sent_elsewhere = "Open the page again and answer there."
    not_readable = "Nothing was sent. Open the page again and answer there."
    too_long = "Nothing was sent. Go back and shorten your answer."
    max_body_bytes = 256 * 1024

    def __init__(
        self, calls: PageCalls, *, authenticate: Authenticate | None = None, **site: Unpack[SiteOptions]
    ) -> None:
        super().__init__(**site)
        self._calls = calls
        self._authenticate = authenticate

    @property
    def routes(self) -> list[Route]:
        """Return the page routes, for an application that is served at `base_url`."""
        return [Route(f"{_PATH}/{{ticket}}", self.respond, methods=["GET", "POST"])]

    def url(self, ticket: str) -> str:
        """Return a page's address.

        Raises:
            ValueError: The ticket has characters that an address cannot have, or is too short.
        """
        if TICKET_PATTERN.fullmatch(ticket) is None:
            raise ValueError("ticket must have at least 16 characters, and only letters, digits and . _ ~ -")
        return f"{self._base}{_PATH}/{ticket}"

    async def respond(self, request: Request) -> Response:
        """Return the response to a page request."""
        ticket = str(request.path_params["ticket"])
        if TICKET_PATTERN.fullmatch(ticket) is None:
            return self._state_page(ticket, None, calls.ClosedPage())
        request.state.page_url = self.url(ticket)
        subject = None
        if self._authenticate is not None:
            subject = await self._authenticate(request)
            if isinstance(subject, Response):
                return subject
            if subject is None:
                return self.login()
        show, take = partial(self._show, ticket, subject), partial(self._take, ticket, subject)
        return await self.served(request, show, take)

    async def _show(self, ticket: str, subject: str | None) -> Response:
        """Return a call's page."""
        return self._state_page(ticket, subject, await self._calls.open(ticket, subject))

    async def _take(self, ticket: str, subject: str | None, posted: Posted) -> Response:
        """Return the response to a submitted form.

        Raises:
            PostUnreadable: The content does not come from this page's form.
            CallsUnavailable: The store cannot be used.
        """
        state = await self._calls.open(ticket, subject)
        token = "".join(posted.get(TOKEN, ()))
        if not isinstance(state, calls.AskingPage) or not self._tokens.is_valid(
            token, ticket, subject, state.round_id, state.questions
        ):
            return self._state_page(ticket, subject, state, notice=ANSWERED)
        form, answers = read_form(state.questions, posted)
        if answers is None:
            return self.page("question", 422, form=form, token=token, notice=None)
        if await self._calls.answer(ticket, subject, state.round_id, answers):
            return self.redirect(self.url(ticket))
        state = await self._calls.open(ticket, subject)
        return self._state_page(ticket, subject, state, notice=ANSWERED)

    # Pages

    def _state_page(self, ticket: str, subject: str | None, state: PageState, *, notice: str | None = None) -> Response:
        """Return the page for a call's state. A notice means that the page is the response to a POST that came too
        late.
        """
        status = 200 if notice is None else 409
        values: dict[str, Any]
        match state:
            case calls.AskingPage(round_id, questions):
                token = self._tokens.issue(ticket, subject, round_id, questions)
                template, values = "question", {"form": form_of_questions(questions), "token": token}
            case calls.WorkingPage(seconds, needs_client):
                template, values = "working", {"seconds": seconds, "needs_client": needs_client}
            case calls.AwaitingPage(groups, seconds):
                template, values = "awaiting", {"groups": [printable(group) for group in groups], "seconds": seconds}
            case calls.EndedPage(text, is_error, decisions):
                text = None if text is None else printable(text, keep_newlines=True)
                shown = [_printable_decision(decision) for decision in decisions]
                template, values = "ended", {"text": text, "is_error": is_error, "decisions": shown}
            case calls.ClosedPage():
                # The page must not reveal why it is closed.
                return self.page("closed", 404)
        return self.page(template, status, notice=notice, **values)


def _printable_decision(decision: ShownDecision) -> ShownDecision:
    message, reason = printable(decision.message.partition("\n")[0]), decision.reason
    reason = None if reason is None else printable(reason, keep_newlines=True)
    return replace(decision, message=message, by=printable(decision.by), reason=reason)
