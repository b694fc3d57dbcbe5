"""Testing kit for tools that ask questions. In either era, scripted users call the tools through a real client."""

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
    from roundtrip.testing.networks.carrying import BeginAgain, Deploy, Drop, Duplicate, Hop, Reorder, Restart, Rotate
    from roundtrip.testing.networks.deliveries import Breach, Inapplicable, LegDelivery
    from roundtrip.testing.networks.fleet import TaskUnfinished
    from roundtrip.testing.networks.network import Network, Route
    from roundtrip.testing.networks.tasks import Abort, Kill, Outage
    from roundtrip.testing.scripts import ACCEPT, CANCEL, DECLINE, IGNORE, LEAVE, Answers, Reply
    from roundtrip.testing.users import Unanswered, Unused, User, assert_same_in_all_lives, assert_same_on_both_eras
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
    "BeginAgain",
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
    # Load names on demand. The pytest plugin imports this package, but a test should import only the modules that it
    # uses.
    _HOMES: Final = {
        "roundtrip.client.legs": ["Era", "LegRequest"],
        ".approvers": ["Approver", "Verdict"],
        ".clocks": ["Clock"],
        ".conversations": ["AskedQuestion", "Conversation", "Steps"],
        ".exploration.explored": ["Coverage", "Explored", "Path", "PathAction", "PathOutcome"],
        ".exploration.exploring": ["paths"],
        ".hosting": ["served"],
        ".leg_by_leg": ["LegByLeg"],
        ".networks.attacks": ["Delay", "Eavesdrop", "Garble", "Interleave", "Invent", "Strip", "Swap", "Tamper"],
        ".networks.carrying": ["BeginAgain", "Deploy", "Drop", "Duplicate", "Hop", "Reorder", "Restart", "Rotate"],
        ".networks.fleet": ["TaskUnfinished"],
        ".networks.tasks": ["Abort", "Kill", "Outage"],
        ".networks.deliveries": ["Breach", "Inapplicable", "LegDelivery"],
        ".networks.network": ["Network", "Route"],
        ".scripts": ["ACCEPT", "CANCEL", "DECLINE", "IGNORE", "LEAVE", "Answers", "Reply"],
        ".users": ["Unanswered", "Unused", "User", "assert_same_in_all_lives", "assert_same_on_both_eras"],
        ".visits": ["PageUnfinished", "Visit"],
    }

    def __getattr__(name: str) -> Any:
        from roundtrip.on_demand import load_public_name

        return load_public_name(__name__, name, _HOMES)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
