"""Test tools that ask: scripted users call them through a real client, in either era."""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from roundtrip.client.legs import Era, LegRequest
    from roundtrip.testing.approvers import Approver, Verdict
    from roundtrip.testing.clocks import Clock
    from roundtrip.testing.conversations import AskedQuestion, Conversation, Steps
    from roundtrip.testing.exploration.explored import Coverage, Explored, Path, PathAction, PathOutcome
    from roundtrip.testing.exploration.exploring import paths
    from roundtrip.testing.hosting import served
    from roundtrip.testing.leg_by_leg import LegByLeg
    from roundtrip.testing.networks.attacks import Delay, Eavesdrop, Garble, Interleave, Invent, Strip, Swap, Tamper
    from roundtrip.testing.networks.carrying import Deploy, Drop, Duplicate, Hop, Reorder, Restart, Rotate
    from roundtrip.testing.networks.fleet import TaskUnfinished
    from roundtrip.testing.networks.network import Breach, Inapplicable, LegDelivery, Network, Route
    from roundtrip.testing.networks.tasks import Abort, Kill, Outage
    from roundtrip.testing.scripts import ACCEPT, CANCEL, DECLINE, IGNORE, LEAVE, Answers, Reply
    from roundtrip.testing.users import (
        Unanswered,
        Unused,
        User,
        assert_same_in_all_lives,
        assert_same_on_both_eras,
    )
    from roundtrip.testing.visits import PageUnfinished, Visit

__all__ = [
    "ACCEPT",
    "CANCEL",
    "DECLINE",
    "IGNORE",
    "LEAVE",
    "Abort",
    "Answers",
    "Approver",
    "AskedQuestion",
    "Breach",
    "Clock",
    "Conversation",
    "Coverage",
    "Delay",
    "Deploy",
    "Drop",
    "Duplicate",
    "Eavesdrop",
    "Era",
    "Explored",
    "Garble",
    "Hop",
    "Inapplicable",
    "Interleave",
    "Invent",
    "Kill",
    "LegByLeg",
    "LegDelivery",
    "LegRequest",
    "Network",
    "Outage",
    "PageUnfinished",
    "Path",
    "PathAction",
    "PathOutcome",
    "Reorder",
    "Reply",
    "Restart",
    "Rotate",
    "Route",
    "Steps",
    "Strip",
    "Swap",
    "Tamper",
    "TaskUnfinished",
    "Unanswered",
    "Unused",
    "User",
    "Verdict",
    "Visit",
    "assert_same_in_all_lives",
    "assert_same_on_both_eras",
    "paths",
    "served",
]

if not TYPE_CHECKING:
    # The pytest plugin imports parts of this package, and a test pays for those it uses.
    _HOMES: Final = {
        "roundtrip.client.legs": ["Era", "LegRequest"],
        "roundtrip.testing.approvers": ["Approver", "Verdict"],
        "roundtrip.testing.clocks": ["Clock"],
        "roundtrip.testing.conversations": ["AskedQuestion", "Conversation", "Steps"],
        "roundtrip.testing.exploration.explored": ["Coverage", "Explored", "Path", "PathAction", "PathOutcome"],
        "roundtrip.testing.exploration.exploring": ["paths"],
        "roundtrip.testing.hosting": ["served"],
        "roundtrip.testing.leg_by_leg": ["LegByLeg"],
        "roundtrip.testing.networks.attacks": [
            "Delay",
            "Eavesdrop",
            "Garble",
            "Interleave",
            "Invent",
            "Strip",
            "Swap",
            "Tamper",
        ],
        "roundtrip.testing.networks.carrying": ["Deploy", "Drop", "Duplicate", "Hop", "Reorder", "Restart", "Rotate"],
        "roundtrip.testing.networks.fleet": ["TaskUnfinished"],
        "roundtrip.testing.networks.tasks": ["Abort", "Kill", "Outage"],
        "roundtrip.testing.networks.network": ["Breach", "Inapplicable", "LegDelivery", "Network", "Route"],
        "roundtrip.testing.scripts": ["ACCEPT", "CANCEL", "DECLINE", "IGNORE", "LEAVE", "Answers", "Reply"],
        "roundtrip.testing.users": [
            "Unanswered",
            "Unused",
            "User",
            "assert_same_in_all_lives",
            "assert_same_on_both_eras",
        ],
        "roundtrip.testing.visits": ["PageUnfinished", "Visit"],
    }

    def __getattr__(name: str) -> Any:
        from roundtrip.on_demand import load_public_name

        return load_public_name(__name__, name, _HOMES)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
