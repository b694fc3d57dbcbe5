"""Inbox site: pages and a JSON API, on which people list and decide approvals.

The pages work like question pages: a GET changes nothing, and a form is valid only for one reader and one wording. The
API accepts only JSON, which a page on another site cannot send without a CORS preflight.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from mcp.server.request_state import authenticated_principal
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import Unpack

from roundtrip.approvals.inbox import Inbox, ShownApproval
from roundtrip.approvals.rules import ApprovalFeature, Choice, Reader
from roundtrip.pages.calls import CallsUnavailable
from roundtrip.pages.controls import Posted
from roundtrip.pages.forms import TOKEN, PostUnreadable
from roundtrip.pages.responses import RETRY_HEADERS, BodyTooLong, PageSite, SiteOptions, read_body
from roundtrip.text import iso_text, printable
from roundtrip.untrusted import mapping_of

if TYPE_CHECKING:
    from roundtrip.approvals.markers import Approvals
    from roundtrip.pages.settings import Pages
    from roundtrip.stored.desk import ToolHost
    from roundtrip.stored.service import CallService

INBOX_PATH: Final = "/approvals"
API_PATH: Final = f"{INBOX_PATH}/api"
_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}
_LOGIN: Final = "the server redirected to a login; authenticate= must also read `Authorization: Bearer`"
_MAX_HEADING_CHARS: Final = 200
_MAX_REASON_CHARS: Final = 2000
_API_FACTS: Final = ("id", "message", "by", "tool", "caller", "opened", "until", "state", "when", "who", "reason")
"""The fields that the API returns for an approval, in this order."""
_TIMES: Final = ("opened", "until", "when")
_CHOICES: Final[Mapping[str, Choice]] = {"approve": "approved", "reject": "rejected"}
_UNKNOWN: Final = (
    "There is nothing to decide here",
    "This approval is closed, or you may not decide it. Your inbox lists the approvals that are waiting for you.",
)
_LATE: Final = "Nothing was recorded this time: the approval was already decided, or it has changed."
_NO_DECISION: Final = (
    'a decision must be {"decision": "approve"} or {"decision": "reject", "reason": text}; an approval may also '
    "have a reason"
)
_NO_REASON: Final = "Say why you reject this, so that the person who asked knows what to change"
_NO_REASON_FOR_RECORD: Final = "Say why you reject this: the reason is kept with the call"
_LONG_REASON: Final = f"Shorten the reason to {_MAX_REASON_CHARS} characters"


def install_inbox(
    settings: Approvals,
    pages: Pages | None,
    host: ToolHost,
    service: CallService | None,
    *,
    gives_links: bool,
    has_auth: bool,
) -> Inbox:
    """Give a server its inbox.

    Raises:
        ValueError: The server does not return links, or cannot identify its callers or the people who decide.
    """
    if pages is None or pages.authenticate is None or pages.base_url is None:
        raise ValueError(
            "approvals= needs pages=Pages(base_url=..., authenticate=...); for the same person, authenticate= must "
            "return the same text as principal="
        )
    parts = host.legs.parts
    if service is None or not gives_links:
        raise ValueError("approvals= needs the channel 'link', so that callers can get the result; add it to channels=")
    bind = parts.protection.policy.bind_principal
    if bind is None or (bind is authenticated_principal and not has_auth):
        raise ValueError(
            "approvals= needs a server that knows its callers, because callers must not decide their own calls; add "
            "principal= or auth="
        )
    book = service.book
    inbox = Inbox(settings, parts, book, authenticate=pages.authenticate, base_url=pages.base_url)
    book.features = [inbox if isinstance(each, ApprovalFeature) else each for each in book.features]
    host.legs.extensions.append(inbox)
    look = pages.look(host.low_level.name)
    site = InboxSite(inbox, base_url=pages.base_url, keys=book.page_keys, look=look, templates=pages.folder)
    for route in site.routes:
        host.server.custom_route(route.path, methods=[*(route.methods or ())], include_in_schema=False)(route.endpoint)
    return inbox


class InboxSite(PageSite):
    """Inbox pages and API of one server."""

    sent_elsewhere = "Open the page again and decide there."
    not_readable = "Nothing was decided. Open the page again and decide there."
    too_long = "Nothing was decided. Go back and shorten your reason."
    max_body_bytes = 16 * 1024

    def __init__(self, approvals: Inbox, **site: Unpack[SiteOptions]) -> None:
        super().__init__(**site)
        self._approvals = approvals

    @property
    def routes(self) -> list[Route]:
        """Return the routes, for an application that is served at the base address."""
        return [
            Route(INBOX_PATH, self.respond, methods=["GET"]),
            Route(API_PATH, self.respond_to_api, methods=["GET"]),
            Route(f"{API_PATH}/{{approval}}", self.respond_to_api, methods=["GET", "POST"]),
            Route(f"{INBOX_PATH}/{{approval}}", self.respond, methods=["GET", "POST"]),
        ]

    def url(self, approval_id: str | None = None) -> str:
        """Return the address of the inbox, or of one approval."""
        return f"{self._base}{INBOX_PATH}" + ("" if approval_id is None else f"/{approval_id}")

    # Pages

    async def respond(self, request: Request) -> Response:
        """Return the response to a request for the approval list or for one approval page."""
        path_id = request.path_params.get("approval")
        approval_id = str(path_id or "")
        request.state.page_url = self.url(None if path_id is None else quote(approval_id, safe=""))
        reader = await self._approvals.reader(request)
        if not isinstance(reader, Reader):
            return reader if reader is not None else self.login()
        show, take = partial(self._show_approval, reader, approval_id), partial(self._take_form, reader, approval_id)
        if path_id is None:
            show = partial(self._list_page, reader, request.query_params.get("after"))
        return await self.served(request, show, take)

    async def _list_page(self, reader: Reader, after: str | None) -> Response:
        try:
            approvals, following = await self._approvals.page(reader, after)
        except ValueError:
            return self.error(404, *_UNKNOWN)
        shown = [_view_for_list(each) for each in approvals]
        return self.page("inbox", 200, approvals=shown, following=following, **self._about(reader))

    def _about(self, reader: Reader) -> dict[str, Any]:
        return {"reader": printable(reader.name), "path": self.url()}

    async def _show_approval(self, reader: Reader, approval_id: str, *, notice: str | None = None) -> Response:
        approval = await self._approvals.find(reader, approval_id)
        if approval is None:
            return self.error(404, *_UNKNOWN)
        return self._approval_page(reader, approval, 200 if notice is None else 409, notice=notice)

    async def _take_form(self, reader: Reader, approval_id: str, posted: Posted) -> Response:
        """Return the response to a submitted form.

        Raises:
            CallsUnavailable: The store cannot be used.
        """
        approval = await self._approvals.find(reader, approval_id)
        if approval is None:
            return self.error(404, *_UNKNOWN)
        token = "".join(posted.get(TOKEN, ()))
        if approval.state != "pending" or not self._tokens.is_valid(token, *_form_of(reader, approval)):
            return self._approval_page(reader, approval, 409, notice=_LATE)
        choice = _CHOICES.get("".join(posted.get("choice", ())))
        reason = "".join(posted.get("reason", ())).strip()
        if choice is None:
            return self.unreadable()
        if (mistake := _mistake_in(choice, reason, approval)) is not None:
            return self._approval_page(reader, approval, 422, mistake=mistake, reason=reason)
        decided = await self._approvals.decide(reader, approval_id, approval.pin, choice, reason)
        if isinstance(decided, ShownApproval):
            return self.redirect(self.url(decided.id))
        return await self._show_approval(reader, approval_id, notice=_LATE)

    def _approval_page(
        self,
        reader: Reader,
        approval: ShownApproval,
        status: int,
        *,
        notice: str | None = None,
        mistake: str | None = None,
        reason: str = "",
    ) -> Response:
        shown, token = _view_for_page(approval), self._tokens.issue(*_form_of(reader, approval))
        texts: dict[str, Any] = {"notice": notice, "mistake": mistake, "reason": reason}
        return self.page("approval", status, approval=shown, token=token, **texts, **self._about(reader))

    # API

    async def respond_to_api(self, request: Request) -> Response:
        """Return the response to an API request."""
        request.state.page_url = self.url()
        if request.method == "POST" and not self._may_post(request):
            return self._json({"error": "a decision must be sent as JSON from this site"}, 403)
        reader = await self._approvals.reader(request)
        if not isinstance(reader, Reader):
            # A program cannot follow a login redirect.
            return self._json({"error": "authentication is required" if reader is None else _LOGIN}, 401, _CHALLENGE)
        try:
            return await self._serve_api(request, reader)
        except CallsUnavailable:
            return self._json({"error": "approvals are temporarily unavailable; try again later"}, 503, RETRY_HEADERS)

    async def _serve_api(self, request: Request, reader: Reader) -> Response:
        approval_id = request.path_params.get("approval")
        if approval_id is None:
            return await self._list_approvals(reader, request.query_params.get("after"))
        if request.method == "POST":
            return await self._decide(request, reader, str(approval_id))
        approval = await self._approvals.find(reader, str(approval_id))
        return self._unknown() if approval is None else self._json(_as_data(approval), 200)

    def _may_post(self, request: Request) -> bool:
        headers = request.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_own = headers.get("sec-fetch-site") in (None, "same-origin", "none")
        return kind == "application/json" and is_own and headers.get("origin") in (None, self._origin)

    async def _list_approvals(self, reader: Reader, after: str | None) -> Response:
        try:
            approvals, following = await self._approvals.page(reader, after)
        except ValueError:
            return self._json({"error": "after must be the 'next' value of an earlier page"}, 400)
        return self._json({"approvals": [_as_data(one) for one in approvals], "next": following}, 200)

    async def _decide(self, request: Request, reader: Reader, approval_id: str) -> Response:
        try:
            body: Any = json.loads(await read_body(request, self.max_body_bytes))
        except BodyTooLong:
            return self._json({"error": "the decision is too long"}, 413)
        except (PostUnreadable, ValueError, RecursionError):
            body = None
        data: Mapping[str, Any] = mapping_of(body)
        named, reason = data.get("decision"), data.get("reason")
        if reason is None:
            reason = ""
        choice = _CHOICES.get(named) if isinstance(named, str) else None
        if choice is None or not isinstance(reason, str) or not data.keys() <= {"decision", "reason"}:
            return self._json({"error": _NO_DECISION}, 422)
        approval = await self._approvals.find(reader, approval_id)
        if approval is None:
            return self._unknown()
        if (mistake := _mistake_in(choice, reason.strip(), approval)) is not None:
            return self._json({"error": mistake}, 422)
        decided = await self._approvals.decide(reader, approval_id, None, choice, reason.strip())
        if decided is None:
            return self._unknown()
        if isinstance(decided, ShownApproval):
            return self._json(_as_data(decided), 200)
        return self._json({"error": _LATE}, 409)

    def _unknown(self) -> Response:
        return self._json({"error": "there is no such approval for you to decide"}, 404)

    def _json(self, data: Any, status: int, headers: Mapping[str, str] | None = None) -> Response:
        # Write ASCII only, because UTF-8 cannot encode a lone surrogate.
        text = json.dumps(data)
        return Response(text, status, {**self._headers, **(headers or {})}, media_type=JSONResponse.media_type)


def _form_of(reader: Reader, approval: ShownApproval) -> tuple[str, str, str, dict[str, Any]]:
    return f"approval/{approval.id}", reader.principal, approval.pin, {}


def _mistake_in(choice: Choice, reason: str, approval: ShownApproval) -> str | None:
    if choice == "rejected" and not reason:
        return _NO_REASON if approval.tells_caller else _NO_REASON_FOR_RECORD
    return _LONG_REASON if len(reason) > _MAX_REASON_CHARS else None


def _view_for_list(approval: ShownApproval) -> dict[str, Any]:
    """Return an approval for the list template. Long texts are truncated, because callers write some of them."""
    heading = approval.message.partition("\n")[0]
    is_long = len(heading) > _MAX_HEADING_CHARS
    return _view_for_page(approval) | {
        "heading": printable(heading[:_MAX_HEADING_CHARS]) + ("…" if is_long else ""),
        "caller": printable(approval.caller[:_MAX_HEADING_CHARS]),
    }


def _view_for_page(approval: ShownApproval) -> dict[str, Any]:
    """Return an approval as the templates expect it."""
    facts: dict[str, Any] = approval._asdict()
    shown = {
        name: printable(value, keep_newlines=name == "reason") if isinstance(value, str) else value
        for name, value in facts.items()
    }
    heading, _, text = approval.message.partition("\n")
    shown |= {"heading": printable(heading), "text": printable(text.strip("\n"), keep_newlines=True)}
    return shown | {name: _moment(facts[name]) for name in _TIMES if facts[name] is not None}


def _moment(at: float) -> dict[str, str]:
    text = iso_text(at)
    return {"iso": text, "text": f"{text[:10]} {text[11:16]} UTC"}


def _as_data(approval: ShownApproval) -> dict[str, Any]:
    """Return an approval as the API returns it."""
    shown = ((name, getattr(approval, name)) for name in _API_FACTS)
    return {name: iso_text(value) if name in _TIMES else value for name, value in shown if value is not None}
