"""What a test suite needs for tools that ask: scripted users who speak through a real client, on either era."""

from roundtrip.clients.legs import Era, Leg
from roundtrip.testing.attacks import Delay, Eavesdrop, Garble, Interleave, Invent, Strip, Swap, Tamper
from roundtrip.testing.clocks import Clock
from roundtrip.testing.comparing import assert_same_on_both_eras
from roundtrip.testing.conversations import Conversation, Question
from roundtrip.testing.deliveries import Breach, Delivery, Inapplicable
from roundtrip.testing.hosting import served
from roundtrip.testing.network import Network, Route
from roundtrip.testing.networks import Deploy, Drop, Duplicate, Hop, Reorder, Restart, Rotate
from roundtrip.testing.scripts import ACCEPT, CANCEL, DECLINE, Answers, Reply
from roundtrip.testing.users import Unanswered, Unused, User

__all__ = [
    "ACCEPT",
    "CANCEL",
    "DECLINE",
    "Answers",
    "Breach",
    "Clock",
    "Conversation",
    "Delay",
    "Delivery",
    "Deploy",
    "Drop",
    "Duplicate",
    "Eavesdrop",
    "Era",
    "Garble",
    "Hop",
    "Inapplicable",
    "Interleave",
    "Invent",
    "Leg",
    "Network",
    "Question",
    "Reorder",
    "Reply",
    "Restart",
    "Rotate",
    "Route",
    "Strip",
    "Swap",
    "Tamper",
    "Unanswered",
    "Unused",
    "User",
    "assert_same_on_both_eras",
    "served",
]
