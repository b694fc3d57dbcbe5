"""Question pages for scripted users, who open a page, fill in its form and submit the form.

The pages belong to a roundtrip server in this process. Requests use the server's routes and the user's headers. The
names of questions and fields come from the stored call, because a page does not show them.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import anyio
import httpx2
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    InputResponse,
    TextContent,
)
from starlette.applications import Starlette

from roundtrip.adapters.finding import attached
from roundtrip.approvals.rules import is_open, records_of
from roundtrip.client.tools import WAITING
from roundtrip.ledger.machines import StoredState
from roundtrip.pages.controls import Control, FieldView, view_of_field
from roundtrip.pages.forms import DECISION, TOKEN, PageForm, QuestionKind, form_of_questions
from roundtrip.pages.headers import FORM_TYPE
from roundtrip.server.attach import Attached
from roundtrip.stored.book import StoredView
from roundtrip.stored.content import CallContent, split_id
from roundtrip.testing.conversations import AskedQuestion

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True

_PAGE_PATTERN: Final = re.compile(r"https?://[^\s'\"<>]+/ask/([A-Za-z0-9._~-]{16,2048})", re.ASCII)
_APPROVAL_PREFIX: Final = "This call waits for an approval by "
_POLL_SECONDS: Final = 0.01
_WAIT_SECONDS: Final = 60.0
_MISTAKES_STATUS: Final = 422

AnswerQuestions = Callable[[Sequence[AskedQuestion]], Awaitable[Sequence[InputResponse | None] | None]]
"""A function that answers a page's questions, in order. If it returns None, the user leaves the page."""


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A waiting call, with the tool and the handle that continue it, and the user's link, if there is one."""

    tool: str
    handle: str
    link: str | None


def waiting_call(result: object) -> WaitingCall | None:
    """Return the waiting call that a result describes; None for any other result."""
    if not isinstance(result, CallToolResult) or result.is_error:
        return None
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    # If the call waits for an approver, its page does not ask the user anything.
    handle, link = WAITING.search(text), None if _APPROVAL_PREFIX in text else _PAGE_PATTERN.search(text)
    return None if handle is None else WaitingCall(handle[1], handle[2], None if link is None else link[0])


def page_at(url: str, server: object) -> "QuestionPage | None":
    """Return the question page at a URL. Return None for any other URL, or if the server is in another process."""
    url_match = _PAGE_PATTERN.fullmatch(url)
    ours = attached(server)
    if url_match is None or ours is None or ours.call_service is None:
        return None
    call_id, _ = split_id(url_match[1])
    return QuestionPage(url, call_id, ours)


async def questions_for_model(server: object, call_id: str) -> list[AskedQuestion]:
    """Return a stored call's open questions that a model may answer, under the names that the model uses."""
    view = await stored_view(server, call_id)
    if view is None or view.entry.state is not StoredState.ASKING:
        return []
    asked = view.content.asked.questions
    return [AskedQuestion(key, ElicitRequest.model_validate(asked[key]).params) for key in view.content.asked.for_model]


async def open_approvals(server: object, call_id: str) -> str:
    """Describe the approvals that a stored call is waiting for. Return "" if there are none, or if the server is in
    another process.
    """
    view = await stored_view(server, call_id)
    if view is None or view.entry.has_ended:
        return ""
    waiting = [record for record in records_of(view.content) if is_open(record)]
    return " and ".join(f"approval {record['name']!r} by {record['by']!r}" for record in waiting)


async def stored_view(server: object, call_id: str) -> StoredView | None:
    """Return a stored call; None if there is no such call, or if the server is in another process."""
    service = ours.call_service if (ours := attached(server)) is not None else None
    return await service.book.view(call_id) if service is not None else None


def browser_on(server: Attached, **options: Any) -> httpx2.AsyncClient:
    """Make a browser that opens the pages of a server in this process. The URLs may have any host name."""
    app = Starlette(routes=server.own_routes)
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), **options)


def pages_among(round_: InputRequiredResult | None, server: object) -> set[str]:
    """Return the names of the questions that link to a question page. Their answers do not pass through the client."""
    return {key for key, url in urls_in(round_).items() if page_at(url, server) is not None}


def urls_in(round_: InputRequiredResult | None) -> dict[str, str]:
    """Return the URLs that a round asks the user to open, by question name. The URLs may belong to any site."""
    requests = (round_.input_requests if round_ is not None else None) or {}
    return {
        key: request.params.url
        for key, request in requests.items()
        if isinstance(request, ElicitRequest) and isinstance(request.params, ElicitRequestURLParams)
    }


class QuestionPage:
    """A call's question page.

    Args:
        url: The page's URL.
        call_id: The call's id.
        server: The server that serves the page.
    """

    def __init__(self, url: str, call_id: str, server: Attached) -> None:
        self.url = url
        self.call_id = call_id
        self._server = server

    async def play(self, answer: AnswerQuestions, *, headers: Mapping[str, str]) -> bool:
        """Answer all rounds on the page until the call ends or needs its client.

        Return False if the user leaves the page first. If the page reports a mistake, the user gives the next answer.

        Raises:
            AssertionError: The page does not open, or rejects an answer.
        """
        async with browser_on(self._server, headers=headers) as browser:
            while (view := await self._wait_for_pause()) is not None:
                content = view.content
                if view.entry.has_ended or not content.user_questions:
                    break
                questions = [
                    AskedQuestion(content.asked.names[key], ElicitRequest.model_validate(request).params, page=self.url)
                    for key, request in content.user_questions.items()
                ]
                page = await browser.get(self.url)
                self._require(page, 200, "opened")
                response, before = None, None
                while response is None or response.status_code == _MISTAKES_STATUS:
                    answers = await answer(questions)
                    if answers is None:
                        return False
                    if response is not None and answers == before:
                        break
                    before = answers
                    response = await self._send(browser, page.text, content, questions, answers)
                self._require(response, 303, "answered")
        return True

    async def _wait_for_pause(self) -> StoredView | None:
        """Wait until the call asks a question, needs its client or ends. Return the call; None if the store has dropped
        it.
        """
        with anyio.move_on_after(_WAIT_SECONDS):
            while (view := await stored_view(self._server, self.call_id)) is not None:
                if view.entry.has_ended or view.entry.state is StoredState.ASKING or view.content.needs_client:
                    break
                await anyio.sleep(_POLL_SECONDS)
            return view
        raise AssertionError(f"the call behind a question page has not asked or ended within {_WAIT_SECONDS:g} s")

    async def _send(
        self,
        browser: httpx2.AsyncClient,
        page: str,
        content: CallContent,
        questions: Sequence[AskedQuestion],
        answers: Sequence[InputResponse | None],
    ) -> httpx2.Response:
        form = form_of_questions(content.user_questions)
        fields = [(TOKEN, _PageParser(page).token), *control_texts(form, questions, answers)]
        parts = urlsplit(self.url)
        headers = {"origin": f"{parts.scheme}://{parts.netloc}", "content-type": FORM_TYPE}
        return await browser.post(self.url, content=urlencode(fields), headers=headers)

    def _require(self, response: httpx2.Response, status: int, action: str) -> None:
        if response.status_code == status:
            return
        mistakes = [" ".join(mistake.split()) for mistake in _PageParser(response.text).mistakes]
        reasons = {
            401: "the server has Pages(authenticate=...), so pass the user's login in User(page_headers={...})",
            404: "the page belongs to another user, or has expired; does User(page_headers=...) log in the right user?",
            _MISTAKES_STATUS: f"the page rejected the answer: {'; '.join(mistakes)}",
        }
        raise AssertionError(
            f"a question page could not be {action}: the server answered {response.status_code}; "
            f"{reasons.get(response.status_code, response.text[:200])}"
        )


def control_texts(
    form: PageForm, questions: Sequence[AskedQuestion], answers: Sequence[InputResponse | None]
) -> list[tuple[str, str]]:
    """Return each control's name and text, as a form sends them.

    Raises:
        AssertionError: A form cannot send an answer.
    """
    declines = form.is_single and ElicitResult(action="decline") in answers
    texts = [(DECISION, "decline" if declines else "answer")]
    for view, question, reply in zip(form.questions, questions, answers, strict=True):
        if not isinstance(reply, ElicitResult) or reply.action == "cancel":
            raise AssertionError(
                f"the reply to {question} must be an answer, DECLINE or LEAVE, because "
                f"{'an app' if question.in_app else 'a page'} asks the question, "
                f"got {'no answer' if reply is None else repr(reply)}"
            )
        accepts = reply.action == "accept"
        if accepts:
            # If the answer leaves out a field, the field keeps the value that the form shows.
            texts += [pair for field in view.fields for pair in _typed_pairs(field, reply.content or {})]
        if not form.is_single and not (accepts and view.kind is QuestionKind.FORM):
            texts.append((view.choice_name, "yes" if accepts else "no"))
    return texts


def _typed_pairs(view: FieldView, content: Mapping[str, Any]) -> list[tuple[str, str]]:
    texts = view.typed
    if view.field.name in content:
        value = content[view.field.name]
        filled_view = view_of_field(view.id, replace(view.field, has_default=value is not None, default=value))
        # Send an invalid value unchanged, so that the page reports the mistake.
        texts = filled_view.typed or (
            () if value in (None, []) else (value if isinstance(value, str) else json.dumps(value),)
        )
    if view.control is Control.CHECKBOXES:
        return [(view.id, text) for text in texts]
    return list(zip(view.names, texts, strict=False))


class _PageParser(HTMLParser):
    """A parser that reads a form's token, and the mistakes that the page reports."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.token = ""
        self.mistakes: list[str] = []
        self._in_mistake = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "input" and attributes.get("name") == TOKEN:
            self.token = attributes.get("value") or ""
        if tag == "li":
            self._in_mistake = True
            self.mistakes.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_mistake = self._in_mistake and tag != "li"

    def handle_data(self, data: str) -> None:
        if self._in_mistake:
            self.mistakes[-1] += data
