"""Give servers approvals: in the stored calls of all, and the inbox in which people decide to those that want one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.request_state import authenticated_principal

from roundtrip.approvals.rules import ApprovalFeature
from roundtrip.on_demand import load_on_use

if TYPE_CHECKING:
    from roundtrip.approvals import inbox, inbox_site
    from roundtrip.approvals.settings import Approvals
    from roundtrip.pages import rendering
    from roundtrip.pages.settings import Pages
    from roundtrip.stored.desk import ToolHost
    from roundtrip.stored.service import CallService
else:
    load_on_use(globals(), "roundtrip.approvals.inbox", "roundtrip.approvals.inbox_site", "roundtrip.pages.rendering")


def install_inbox(
    settings: Approvals,
    pages: Pages | None,
    host: ToolHost,
    service: CallService | None,
    *,
    gives_links: bool,
    has_auth: bool,
) -> inbox.Inbox:
    """Give a server its inbox.

    Raises:
        ValueError: The server does not know its callers, or the people who decide.
    """
    if pages is None or pages.authenticate is None or pages.base_url is None:
        raise ValueError(
            "approvals= needs pages=Pages(base_url=..., authenticate=...), which names the people who decide as "
            "principal= names callers"
        )
    parts = host.legs.parts
    if service is None or not gives_links:
        raise ValueError("approvals= needs the channel 'link', by which a caller gets the result; add it to channels=")
    bind = parts.protection.policy.bind_principal
    if bind is None or (bind is authenticated_principal and not has_auth):
        raise ValueError(
            "approvals= needs to know callers, because they must not decide their own calls; give the server "
            "principal= or auth="
        )
    book = service.book
    made = inbox.Inbox(settings, parts, book, authenticate=pages.authenticate, base_url=pages.base_url)
    book.features = [made if isinstance(each, ApprovalFeature) else each for each in book.features]
    host.legs.extensions.append(made)
    site = inbox_site.InboxSite(
        made,
        base_url=pages.base_url,
        keys=book.page_keys,
        renderer=rendering.PageRenderer(pages.look(host.low_level.name), templates=pages.folder),
    )
    for route in site.routes:
        host.server.custom_route(route.path, methods=[*(route.methods or ())], include_in_schema=False)(route.endpoint)
    return made
