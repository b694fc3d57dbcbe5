"""Leg extensions and stored calls that a server's options and tools turn on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Never

from typing_extensions import override

from roundtrip.errors import NeedsTask
from roundtrip.legs.extensions import LegExtension
from roundtrip.on_demand import load_on_use
from roundtrip.once.extension import ExactlyOnce
from roundtrip.questions.markers import ExternalMarker
from roundtrip.server.settings import StoringOptions, wants_stored_calls
from roundtrip.tools.promises import warn_of_promise

if TYPE_CHECKING:
    from roundtrip.approvals import inbox, inbox_site, rules
    from roundtrip.channels import stored_calls
    from roundtrip.channels.stored_calls import StoredCalls
    from roundtrip.engine.computed import ComputedValues
    from roundtrip.legs.extensions import OpenLeg
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.parts import Parts
    from roundtrip.stored.content import CallFeature
    from roundtrip.stored.desk import ToolHost
    from roundtrip.stored.storage import Storage
    from roundtrip.tasks import extension

load_on_use(
    globals(),
    "roundtrip.approvals.inbox",
    "roundtrip.approvals.inbox_site",
    "roundtrip.approvals.rules",
    "roundtrip.channels.stored_calls",
    "roundtrip.tasks.extension",
)


def extensions_of(
    parts: Parts, *, stored_of: Callable[[], StoredCalls | None], service_of: Callable[[], str]
) -> tuple[LegExtension, ...]:
    """Return the server's leg extensions, outermost first.

    Args:
        parts: The server's parts.
        stored_of: Returns the server's stored calls, which contain its inbox; None if the server stores no calls.
        service_of: Returns the name of the service.
    """
    return _TaskNeed(parts), ExactlyOnce(parts, service_of), _ApprovalNeed(stored_of)


def stored_features() -> list[CallFeature]:
    """Return the features of stored calls. Approvals are always included, because a server without an inbox may
    continue a call that waits for an approval.
    """
    return [rules.ApprovalFeature()]


def install_stored_calls(
    host: ToolHost, storage: Storage, options: StoringOptions, *, has_auth: bool
) -> StoredCalls | None:
    """Add the pages, the tool that continues calls, and the inbox that the server's options require.

    Raises:
        TypeError: The channels are not a list of names.
        ValueError: The options contradict each other, or the server does not authenticate its callers.
        InvalidSignature: The ledger cannot store calls.
    """
    if not wants_stored_calls(options):
        return None
    pages, approvals = options.get("pages"), options.get("approvals")
    stored = stored_calls.StoredCalls.install(options.get("channels"), pages, host, storage)
    if approvals is not None:
        links = stored is not None and stored.gives_links
        found = inbox_site.install_inbox(approvals, pages, host, storage.tasks, gives_links=links, has_auth=has_auth)
        if stored is not None:
            stored.inbox = found
    return stored


def reject_waits(caller: str, computed: ComputedValues) -> Never:
    """Reject a body that waits, because its call is not stored.

    Raises:
        NeedsTask: Always.
    """
    del computed
    raise NeedsTask(caller)


class _TaskNeed(LegExtension):
    """Leg extension for tools that run as tasks. A tool that requires a task rejects clients without task support."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @override
    def concerns(self, function: AskingFunction) -> bool:
        if function.hands_over:
            warn_of_promise(function, self._parts, "runs as a task")
        return function.hands_over

    @override
    def join(self, leg: OpenLeg) -> None:
        if leg.incoming.record is not None and leg.parts.effects.dry_run is None:
            extension.require_task(leg.function, leg.incoming)


class _ApprovalNeed(LegExtension):
    """Registration check: if a tool needs approvals, the server must have an inbox."""

    def __init__(self, stored_of: Callable[[], StoredCalls | None]) -> None:
        self._stored_of = stored_of

    @override
    def concerns(self, function: AskingFunction) -> bool:
        kinds = [node.asked for node in function.planned.plan.nodes]
        asks = any(isinstance(kind, type) and issubclass(kind, ExternalMarker) for kind in kinds)
        if asks or function.policy(ExternalMarker) is not None:
            stored = self._stored_of()
            inbox.check_approval(function, stored.inbox if stored is not None else None)
        return False
