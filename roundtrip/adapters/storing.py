"""Store calls on servers of other classes: for question pages, models that answer, approvals and tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roundtrip.on_demand import load_on_use

if TYPE_CHECKING:
    from roundtrip.adapters.installation import Installation, InstallOptions
    from roundtrip.approvals import inbox_pages
    from roundtrip.channels import stored_calls
    from roundtrip.stored.hosts import CallsOfTools, ToolShelf
else:
    load_on_use(globals(), "roundtrip.approvals.inbox_pages", "roundtrip.channels.stored_calls")

_OPTIONS = ("pages", "ladder", "approvals")


def wants_stored_calls(options: InstallOptions) -> list[str]:
    """Return the options of `install` that need stored calls."""
    return [name for name in _OPTIONS if options.get(name) is not None]


def install_stored_calls(
    installation: Installation[Any],
    options: InstallOptions,
    *,
    calls: CallsOfTools,
    tools: ToolShelf,
    has_auth: bool,
) -> None:
    """Give a server of another class what its options need: pages, a tool that continues calls, and an inbox.

    Raises:
        TypeError: The ladder is not a list of names.
        ValueError: The options contradict each other, or the server does not know its callers.
        InvalidSignature: The ledger cannot store calls.
    """
    legs, pages, approvals = installation.legs, options.get("pages"), options.get("approvals")
    stored = installation.stored_calls = stored_calls.StoredCalls.install(
        options.get("ladder"), pages, installation, installation.storage, legs, calls, tools
    )
    if approvals is not None:
        links = stored is not None and stored.gives_links
        installation.inbox = inbox_pages.install_inbox(
            approvals,
            pages,
            installation,
            legs,
            service=installation.storage.tasks,
            gives_links=links,
            has_auth=has_auth,
        )
        if stored is not None:
            stored.inbox = installation.inbox
