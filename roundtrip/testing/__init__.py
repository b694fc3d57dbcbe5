"""What a test suite needs for tools that ask: scripted users who speak through a real client, on either era."""

from roundtrip.client.legs import Era, Leg
from roundtrip.testing.clocks import Clock
from roundtrip.testing.comparing import assert_same_on_both_eras
from roundtrip.testing.conversations import Conversation, Question
from roundtrip.testing.exploration.explored import Action, Coverage, Explored, Path, PathOutcome
from roundtrip.testing.exploration.exploring import paths
from roundtrip.testing.hosting import served
from roundtrip.testing.leg_by_leg import LegByLeg
from roundtrip.testing.networks.attacks import Delay, Eavesdrop, Garble, Interleave, Invent, Strip, Swap, Tamper
from roundtrip.testing.networks.carrying import Deploy, Drop, Duplicate, Hop, Reorder, Restart, Rotate
from roundtrip.testing.networks.deliveries import Breach, Delivery, Inapplicable
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
    "Action",
    "Answers",
    "Breach",
    "Clock",
    "Conversation",
    "Coverage",
    "Delay",
    "Delivery",
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
    "Leg",
    "LegByLeg",
    "Network",
    "PageUnfinished",
    "Path",
    "PathOutcome",
    "Question",
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
