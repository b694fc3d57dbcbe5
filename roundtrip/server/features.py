"""Features of a server that take part in its legs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from roundtrip.legs.extensions import LegExtension
from roundtrip.on_demand import load_on_use
from roundtrip.once.extension import ExactlyOnce
from roundtrip.questions.markers import ExternalMarker
from roundtrip.tools.promises import warn_of_promise

if TYPE_CHECKING:
    from roundtrip.approvals import inbox, rules
    from roundtrip.approvals.inbox import Inbox
    from roundtrip.docket import dependencies
    from roundtrip.legs.extensions import OpenLeg
    from roundtrip.legs.functions import AskingFunction, FunctionSignature
    from roundtrip.legs.parts import Parts
    from roundtrip.stored.content import CallFeature
    from roundtrip.tasks import extension
else:
    load_on_use(
        globals(),
        "roundtrip.approvals.inbox",
        "roundtrip.approvals.rules",
        "roundtrip.docket.dependencies",
        "roundtrip.tasks.extension",
    )


def extensions_of(parts: Parts, *, inbox_of: Callable[[], Inbox | None]) -> tuple[LegExtension, ...]:
    """Return the features of a server, the outermost first.

    Args:
        parts: The parts of the server.
        inbox_of: Returns the inbox, if the server has one.
    """
    return _TaskNeed(parts), ExactlyOnce(parts), _ApprovalNeed(inbox_of)


def stored_features() -> list[CallFeature]:
    """Return the features of stored calls. A server without an inbox may continue calls with approvals, too."""
    return [rules.ApprovalFeature()]


def filled_by_docket(signature: FunctionSignature, policies: Mapping[type, object]) -> LegExtension:
    """Return the feature that fills parameters of a function with dependencies of Docket."""
    return dependencies.DocketParameters.of(signature, policies)


class _TaskNeed(LegExtension):
    """Tools that run as a task, also for clients that cannot have tasks."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @override
    def concerns(self, function: AskingFunction) -> bool:
        if function.hands_over:
            warn_of_promise(function, self._parts, "runs as a task")
        return function.hands_over

    @override
    def join(self, leg: OpenLeg) -> None:
        if leg.incoming.record is not None and leg.parts.effects.rehearsal is None:
            extension.require_task(leg.function, leg.incoming)


class _ApprovalNeed(LegExtension):
    """Tools that need an approval, which a server without an inbox cannot get."""

    def __init__(self, inbox_of: Callable[[], Inbox | None]) -> None:
        self._inbox_of = inbox_of

    @override
    def concerns(self, function: AskingFunction) -> bool:
        kinds = [node.asked for node in function.plan.nodes]
        asks = any(isinstance(kind, type) and issubclass(kind, ExternalMarker) for kind in kinds)
        if asks or function.policy(ExternalMarker) is not None:
            inbox.check_approval(function, self._inbox_of())
        return False
