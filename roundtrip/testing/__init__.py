"""What a test suite needs for tools that ask: scripted users who speak through a real client, on either era."""

from roundtrip.client.legs import Era, LegRequest
from roundtrip.testing.clocks import Clock
from roundtrip.testing.comparing import assert_same_on_both_eras
from roundtrip.testing.conversations import AskedQuestion, Conversation
from roundtrip.testing.exploration.explored import Coverage, Explored, Path, PathAction, PathOutcome
from roundtrip.testing.exploration.exploring import paths
from roundtrip.testing.hosting import served
from roundtrip.testing.leg_by_leg import LegByLeg
from roundtrip.testing.networks.attacks import Delay, Eavesdrop, Garble, Interleave, Invent, Strip, Swap, Tamper
from roundtrip.testing.networks.carrying import Deploy, Drop, Duplicate, Hop, Reorder, Restart, Rotate
from roundtrip.testing.networks.deliveries import Breach, Inapplicable, LegDelivery
from roundtrip.testing.networks.network import Network, Route
from roundtrip.testing.scripts import ACCEPT, CANCEL, DECLINE, IGNORE, LEAVE, Answers, Reply
from roundtrip.testing.steps import Steps
from roundtrip.testing.users import Unanswered, Unused, User
from roundtrip.testing.visits import PageUnfinished, Visit

__all__ = [
    "ACCEPT",
    "CANCEL",
    "DECLINE",
    "IGNORE",
    "LEAVE",
    "Answers",
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
    "LegByLeg",
    "LegDelivery",
    "LegRequest",
    "Network",
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
    "Unanswered",
    "Unused",
    "User",
    "Visit",
    "assert_same_on_both_eras",
    "paths",
    "served",
]
