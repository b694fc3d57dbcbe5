"""Give a server its inbox: the rules of approvals, and the pages and the API by which people decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.request_state import authenticated_principal

from roundtrip.approvals.inbox import Inbox
from roundtrip.approvals.inbox_site import InboxSite
from roundtrip.pages.rendering import PageRenderer

if TYPE_CHECKING:
    from roundtrip.approvals.settings import Approvals
    from roundtrip.legs.runner import LegRunner
    from roundtrip.pages.settings import Pages
    from roundtrip.stored.hosts import StoringServer
    from roundtrip.stored.service import TaskService


def install_inbox(
    settings: Approvals,
    pages: Pages | None,
    server: StoringServer,
    legs: LegRunner,
    *,
    service: TaskService | None,
    gives_links: bool,
    has_auth: bool,
) -> Inbox:
    """Give a server its inbox.

    Raises:
        ValueError: The server does not know its callers, or the people who decide.
    """
    if pages is None or pages.authenticate is None or pages.base_url is None:
        raise ValueError(
            "approvals= needs pages=Pages(base_url=..., authenticate=...), which names the people who decide as "
            "principal= names callers"
        )
    if service is None or not gives_links:
        raise ValueError("approvals= needs the rung 'link', by which a caller gets the result; add it to ladder=")
    bind = legs.parts.protection.policy.bind_principal
    if bind is None or (bind is authenticated_principal and not has_auth):
        raise ValueError(
            "approvals= needs to know callers, because they must not decide their own calls; give the server "
            "principal= or auth="
        )
    book = service.book
    inbox = Inbox(settings, legs.parts, book, authenticate=pages.authenticate, base_url=pages.base_url)
    book.inbox = inbox
    legs.extensions.append(inbox)
    site = InboxSite(
        inbox,
        base_url=pages.base_url,
        keys=book.page_keys,
        renderer=PageRenderer(pages.look(server.name), templates=pages.folder),
    )
    for route in site.routes:
        server.custom_route(route.path, methods=[*(route.methods or ())], include_in_schema=False)(route.endpoint)
    return inbox
